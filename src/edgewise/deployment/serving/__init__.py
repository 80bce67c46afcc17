"""A run as a small HTTP service: predictions as JSON, for whatever its task reads."""

from edgewise.deployment.serving.application import application as application
from edgewise.deployment.serving.requests import Limits as Limits
from edgewise.deployment.serving.server import serve as serve
