from .answers import load as load
from .data import DataSpec as DataSpec
from .probing import Probe as Probe
from .registry import File as File
from .registry import Observation as Observation
from .registry import PerLane as PerLane
from .registry import Picture as Picture
from .registry import Range as Range
from .registry import dataset as dataset
from .registry import model as model
from .registry import plugin as plugin
from .registry import probe as probe
from .registry import to_plain as to_plain
from .registry import trainer as trainer
from .tensorboard import GraphNode as GraphNode
from .tensorboard import graph as graph
from .training import Trainer as Trainer

__version__: str
