from .event_file import EVENT_FILES as EVENT_FILES
from .event_file import EventFile as EventFile
from .event_file import write_session_end as write_session_end
from .protos import GraphNode as GraphNode
from .protos import graph as graph
