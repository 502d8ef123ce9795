"""What every section of ``matrix.yaml`` has in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
