"""Floor 0: settings. What an option may be, and the one way from YAML and the command line to typed settings."""

from edgewise.configuration.choices import Bounds as Bounds
from edgewise.configuration.choices import Choice as Choice
from edgewise.configuration.choices import Count as Count
from edgewise.configuration.choices import Natural as Natural
from edgewise.configuration.choices import NonNegative as NonNegative
from edgewise.configuration.choices import OneOf as OneOf
from edgewise.configuration.choices import Option as Option
from edgewise.configuration.choices import Portion as Portion
from edgewise.configuration.choices import Positive as Positive
from edgewise.configuration.choices import Real as Real
from edgewise.configuration.choices import Share as Share
from edgewise.configuration.choices import Text as Text
from edgewise.configuration.choices import descriptions as descriptions
from edgewise.configuration.choices import options_of as options_of
from edgewise.configuration.conversion import Settings as Settings
from edgewise.configuration.conversion import build as build
from edgewise.configuration.conversion import chosen as chosen
from edgewise.configuration.conversion import convert as convert
from edgewise.configuration.conversion import known as known
from edgewise.configuration.conversion import known_options as known_options
from edgewise.configuration.conversion import parse_yaml as parse_yaml
from edgewise.configuration.conversion import plain as plain
from edgewise.configuration.conversion import read_yaml as read_yaml
from edgewise.configuration.conversion import require as require
from edgewise.configuration.conversion import typed as typed
