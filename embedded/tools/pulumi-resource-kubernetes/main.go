// Command pulumi-resource-kubernetes is Pulumi's Kubernetes provider, built from the module that Pulumi publishes. The
// module's own main embeds files that only Pulumi's release process generates; this one embeds what the module holds.
package main

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

//go:embed schema.json
var schema []byte

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(version.Version)
		return
	}
	provider.Serve("kubernetes", version.Version, schema, []byte("{}"))
}
