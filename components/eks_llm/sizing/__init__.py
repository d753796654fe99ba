"""Pure arithmetic on catalogue facts and settings: what fits, what it needs, what it costs. No Pulumi here."""
