//go:build tools

// Package tools pins KWOK, which plays the kubelet of nodes that do not exist.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
