from .devices import num_workers as num_workers
from .dry_run import dry_run_report as dry_run_report
from .plan import plan_cohorts as plan_cohorts
from .plan_runner import run_plan as run_plan
