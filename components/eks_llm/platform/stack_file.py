"""The stack file as typed settings: what `Pulumi.<stack>.yaml` says, and everything that is wrong with it at once.

`load` is the one reader: an own program calls it before it registers anything, as infra/__main__.py does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env, is_config_secret
from pydantic import ValidationError

from ..catalog.regions import OTHER_PARTITIONS, REGIONS
from ..core.model import Model
from ..core.problems import InvalidArgs, Problem, folded, nearest, problems, shown
from ..sizing import own_prices
from ..sizing.report import Report
from . import configuration, kubeconfig
from .rules import RULES, cluster_name, parts, warnings
from .schema import GRAFANA_SECRET, AwsAccess, ExistingPlatform, Platform
from .sections import NOT_BESIDE, Sections, form_of, read
from .sum import check


@dataclass(frozen=True)
class Settings:
    """A stack that can be built."""

    platform: Platform
    region: str
    """Empty only beside an existing cluster, which needs none."""
    access: AwsAccess
    config: pulumi.Config
    report: Report
    """What the stack needs and costs."""
    kubeconfig: str | None = None
    """Of the existing cluster; None: there is none, or (in a preview) its file is missing."""

    def provider_args(self) -> dict[str, Any]:
        """Arguments of the AWS provider, beside region and tags. Roles with a secret `externalId` are secret."""
        args = self.access.provider_args()
        if is_config_secret("aws:assumeRoles"):
            args["assume_roles"] = pulumi.Output.secret(args["assume_roles"])
        return args

    def secret(self, key: str) -> pulumi.Output[str]:
        """The secret `key` of the stack. `load` has refused an update without it; a preview goes on with a stand-in."""
        return self.config.get_secret(key) or pulumi.Output.secret("not set")


def load(config: pulumi.Config, stack: str, root: Path | None = None) -> Settings:
    """The settings of `stack` in the project's `config`; what is doubtful is logged as a warning.

    `root`: where paths in the stack file start. Default: the folder of Pulumi.yaml.
    Raises `InvalidArgs` with every problem: file, key path, bad value, what would be right.
    """
    keys, root = {**get_config_env(), **CONFIG.get()}, root or Path(pulumi.get_root_directory() or ".")
    if not keys:
        needed = f"it needs aws:region and {config.name}:platform below `config:`, see docs/reference/stack-file.md"
        raise InvalidArgs(f"Pulumi.{stack}.yaml", [Problem("", f"the file is empty or has no configuration; {needed}")])
    found: list[Problem] = []
    raw = configuration.parsed(config.get("platform"))
    if is_config_secret(f"{config.name}:platform"):
        raise InvalidArgs(f"Pulumi.{stack}.yaml", configuration.secrets_below_platform(raw, config.name))
    raw = configuration.as_written(raw, "platform", found)
    keys = {key: text if is_config_secret(key) else configuration.as_written(text, key, found)
            for key, text in keys.items() if key != f"{config.name}:platform"}  # fmt: skip
    form = form_of(raw)
    region, access = _region(keys.get("aws:region", ""), form, found), _access(keys, form, found)
    sections, bad = read(raw, form, root)
    renamed = [] if raw else _of_another_project(config, keys)
    found += renamed or bad
    access_file, missing = _kubeconfig(sections, root, found)
    name = f"{config.name}-{stack}"
    found += cluster_name(name)
    found += [problem for rule in RULES for problem in rule(sections, region)]
    report, bad = _sized(name, sections, region, root)
    found += bad
    found += [Problem(_full(finding.path), finding.message) for finding in report.errors]
    found += _own_keys(config, keys, sections)
    if found:
        raise InvalidArgs(f"Pulumi.{stack}.yaml", sorted(dict.fromkeys(found), key=lambda problem: problem.path))

    platform = form.model_validate({name: getattr(sections, name) for name in form.model_fields})
    unset = [f"{config.name}:{key}: not set; run: pulumi config set --secret {key}" for key in platform.secret_keys
             if config.get(key) is None]  # fmt: skip
    if unset and not pulumi.runtime.is_dry_run():
        raise InvalidArgs(f"Pulumi.{stack}.yaml", [Problem("", text) for text in unset])
    sized = [f"{_full(finding.path)}: {finding.message}" for finding in report.warnings]
    own = {f"{config.name}:{key}" for key in ("platform", *platform.secret_keys)}
    unused = [f"{key}: no service names this secret" for key in keys.keys() - own if key.startswith(f"{config.name}:")]
    doubts = [*missing, *unset, *unused, *_unread(config, keys), *warnings(platform, access), *sized]
    for warning in folded(doubts):
        pulumi.log.warn(warning)
    return Settings(platform, region, access, config, report, access_file)


# Reading ------------------------------------------------------------------------------------------------------------


def _region(text: str, form: type[Model], found: list[Problem]) -> str:
    """`aws:region`; empty where it is none, so that no rule compares with it."""
    if is_config_secret("aws:region"):
        found.append(configuration.secret_access("region"))
        return ""
    if text in REGIONS or (not text and form is ExistingPlatform):
        return text
    if partition := OTHER_PARTITIONS.get(text):
        problem = f"{text!r} is in the partition {partition}, and the components write ARNs of the partition aws only"
    elif not text:
        problem = "required, but missing; run: pulumi config set aws:region us-west-2 (or another region)"
    else:
        hint = nearest(text, list(REGIONS))
        problem = f"{shown(text)} is not an AWS region{hint if hint.startswith(';') else ' such as us-west-2'}"
    found.append(Problem("aws:region", problem))
    return ""


def _access(keys: Mapping[str, str], form: type[Model], found: list[Problem]) -> AwsAccess:
    """The sign-in. The AWS provider is an explicit one, so no other `aws:` key would reach it."""
    given = {key.removeprefix("aws:"): text for key, text in keys.items() if key.startswith("aws:")}
    if form is ExistingPlatform:
        found += [Problem(f"aws:{key}", f"{NOT_BESIDE}; remove it") for key in given if key != "region"]
        return AwsAccess()
    known = ["region", *(field.alias or name for name, field in AwsAccess.model_fields.items())]
    for key in given.keys() - set(known):
        hint = "; use platform.tags" if key == "defaultTags" else nearest(key, known)
        found.append(Problem(f"aws:{key}", f"this program does not pass it on, so it would be ignored{hint}"))
    used = {key: text if key == "profile" else configuration.parsed(text) for key, text in given.items()
            if key in known[1:]}  # fmt: skip
    for key in [key for key in used if key != "assumeRoles" and is_config_secret(f"aws:{key}")]:
        found.append(configuration.secret_access(key))
        del used[key]
    secret = is_config_secret("aws:assumeRoles")
    if secret:
        used["assumeRoles"] = configuration.secret_roles(used["assumeRoles"], used.get("allowedAccountIds"))
    try:
        return AwsAccess.model_validate(used)
    except ValidationError as error:
        for problem in problems(error, AwsAccess):
            hidden = secret and problem.path.startswith("assumeRoles")
            found.append(configuration.unshown(problem) if hidden else Problem(f"aws:{problem.path}", problem.message))
        return AwsAccess()


def _kubeconfig(sections: Sections, root: Path, found: list[Problem]) -> tuple[str | None, list[str]]:
    """The existing cluster's kubeconfig, and what to warn of."""
    access = sections.existing_cluster
    if access is None:
        return None, []
    path, why = "platform.existingCluster.kubeconfig", ""
    try:
        return kubeconfig.read(root / access.kubeconfig, access.context), []
    except FileNotFoundError:
        why = f"{access.kubeconfig} does not exist"
        if pulumi.runtime.is_dry_run():
            return None, [f"{path}: {why}, so this preview is without the cluster; an update needs it"]
    except OSError as error:
        why = f"{access.kubeconfig} cannot be read ({error.strerror})"
    except ValueError as error:
        why = f"{access.kubeconfig}: {error}"
    found.append(Problem(path, why))
    return None, []


def _sized(name: str, sections: Sections, region: str, root: Path) -> tuple[Report, list[Problem]]:
    """Memory, parallelism, GPU budget, quotas and cost of what is sound so far."""
    prices, bad = None, []
    try:
        prices = own_prices.read(root)
    except ValueError as error:
        bad = [Problem("", str(error))]
    return check(parts(name, sections), region, prices=prices), bad


def _of_another_project(config: pulumi.Config, keys: Mapping[str, str]) -> list[Problem]:
    """What to say of a file that was written for a project of another name, as after a fork."""
    wanted = f"{config.name}:platform"
    others = [key for key in keys if key.endswith(":platform") and key != wanted]
    text = "is there, and this project reads {wanted}; rename the keys, or set name: {name} in Pulumi.yaml"
    return [Problem(key, text.format(wanted=wanted, name=key.partition(":")[0])) for key in others]


def _unread(config: pulumi.Config, keys: Mapping[str, str]) -> Iterator[str]:
    """Keys that seem to change what this stack does, and do not. Those of other providers may be the program's own."""
    for key in keys:
        namespace, _, name = key.partition(":")
        if namespace == "kubernetes":
            yield f"{key}: objects go where an explicit provider says, so this does not reach them"
        elif name == "platform" and namespace != config.name:
            yield f"{key}: of a project called {namespace}; this one reads {config.name}:platform"


def _full(path: str) -> str:
    return path if ":" in path else f"platform.{path}"


def _own_keys(config: pulumi.Config, keys: Mapping[str, str], sections: Sections) -> Iterator[Problem]:
    secrets = {GRAFANA_SECRET, *sections.secret_names}
    for full in keys:
        namespace, _, key = full.partition(":")
        if namespace != config.name or key == "platform" or is_config_secret(full):
            continue
        if key in secrets:
            yield Problem(full, f"a secret in plain text; run: pulumi config set --secret {key}")
        else:
            yield Problem(full, f"unknown key{nearest(key, ['platform', GRAFANA_SECRET])}")
