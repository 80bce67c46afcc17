"""The errors that a user can cause: each message says what was wrong, where, and what would be right."""


class EdgewiseError(Exception):
    """Any error that Edgewise raises on purpose; the command line prints it in one line and exits with code 2."""


class GraphError(EdgewiseError, ValueError):
    """A graph that cannot exist: an index out of bounds, a wrong dtype or shape, an impossible pattern."""


class ShapeError(EdgewiseError, ValueError):
    """Tensors that do not fit the graph or one another."""


class BackendRefusal(EdgewiseError, RuntimeError):
    """A backend asked for by name cannot run the call, or no backend can; the message is the backend's reason."""


class ConfigError(EdgewiseError, ValueError):
    """A recipe, option or setting that names something unknown or asks for something impossible."""


class DataError(EdgewiseError, ValueError):
    """A data file that is missing, damaged or not what it claims to be."""


class CheckpointError(EdgewiseError, RuntimeError):
    """A checkpoint that is missing, damaged or made for another model."""


class NonFiniteError(EdgewiseError, ArithmeticError):
    """A loss, gradient or weight became NaN or infinite; the message names the tensor and the step."""
