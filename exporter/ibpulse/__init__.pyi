from ibpulse.base.errors import IbpulseError as IbpulseError
from ibpulse.workbench.pictures.still import Picture as Picture
from ibpulse.workbench.python.node import JobNodes as JobNodes
from ibpulse.workbench.python.node import NodeConnection as NodeConnection
from ibpulse.workbench.python.node import connect as connect
from ibpulse.workbench.python.samples import Dataset as Dataset
from ibpulse.workbench.python.samples import RunReport as RunReport
from ibpulse.workbench.python.samples import SampledRates as SampledRates
from ibpulse.workbench.python.samples import read as read
from ibpulse.workbench.python.tables import Events as Events
from ibpulse.workbench.python.tables import Jobs as Jobs
from ibpulse.workbench.python.tables import SpanSummary as SpanSummary

__version__: str
