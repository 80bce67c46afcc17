"""A run as a small HTTP service: predictions as JSON, for whatever its task reads."""

from edgewise.deployment.serving.server import serve as serve
from edgewise.deployment.serving.service import Limits as Limits
from edgewise.deployment.serving.service import application as application
