from ibpulse.api import Dataset as Dataset
from ibpulse.api import Events as Events
from ibpulse.api import IbpulseError as IbpulseError
from ibpulse.api import Jobs as Jobs
from ibpulse.api import NodeConnection as NodeConnection
from ibpulse.api import Picture as Picture
from ibpulse.api import RunReport as RunReport
from ibpulse.api import SampledRates as SampledRates
from ibpulse.api import SpanSummary as SpanSummary
from ibpulse.api import connect as connect
from ibpulse.api import read as read

__version__: str
