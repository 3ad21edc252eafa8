from .cli import command_line as command_line
