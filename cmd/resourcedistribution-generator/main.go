// Command resourcedistribution-generator is a kustomize function, run as a program, that makes
// ResourceDistributions (OPS-170).
package main

import (
	"fmt"
	"os"

	"github.com/afloat-project/afloat/internal/generator"
	"github.com/afloat-project/afloat/internal/platform/version"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(version.Get().Version)
		return
	}
	if err := generator.Run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
