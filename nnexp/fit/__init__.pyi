from .cohort_fit import CohortFit as CohortFit
from .lightning_trainer import pl as pl
from .progress import DRAW_SECONDS as DRAW_SECONDS
from .progress import FIRST_LINE_SECONDS as FIRST_LINE_SECONDS
from .progress import LINE_SECONDS as LINE_SECONDS
from .progress import ProgressBar as ProgressBar
from .progress import ProgressListener as ProgressListener
from .progress import ProgressSender as ProgressSender
