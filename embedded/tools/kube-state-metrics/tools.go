//go:build tools

// Package tools pins kube-state-metrics, which publishes the state of Kubernetes objects as metrics.
package tools

import _ "k8s.io/kube-state-metrics/v2"
