"""The cases of guards through middlewares around an application without a framework."""

from guard_cases import cases_of
from guard_cases_asgi import Asgi

test_case = cases_of(Asgi)
