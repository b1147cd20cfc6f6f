from ibpulse.workbench.python import Dataset as Dataset
from ibpulse.workbench.python import Events as Events
from ibpulse.workbench.python import IbpulseError as IbpulseError
from ibpulse.workbench.python import JobNodes as JobNodes
from ibpulse.workbench.python import Jobs as Jobs
from ibpulse.workbench.python import NodeConnection as NodeConnection
from ibpulse.workbench.python import Picture as Picture
from ibpulse.workbench.python import RunReport as RunReport
from ibpulse.workbench.python import SampledRates as SampledRates
from ibpulse.workbench.python import SpanSummary as SpanSummary
from ibpulse.workbench.python import connect as connect
from ibpulse.workbench.python import read as read

__version__: str
