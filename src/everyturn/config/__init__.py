"""The configuration: one table of settings, read from TOML and environment."""

from everyturn.config.load import Config, load_config, read_config
from everyturn.config.models import ModelConfig

__all__ = ["Config", "ModelConfig", "load_config", "read_config"]
