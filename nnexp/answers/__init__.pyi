from .open_run import LoadedRun as LoadedRun
from .open_run import load as load
from .open_run import make_data as make_data
from .tables import run_summary as run_summary
from .tables import runs_table as runs_table
from .tables import sweep_summary as sweep_summary
