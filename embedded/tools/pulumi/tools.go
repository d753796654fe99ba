//go:build tools

// Package tools pins the Pulumi CLI: the import keeps its dependencies in go.mod when `go mod tidy` runs.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
