// Command kubectl-afloat is a kubectl plugin. kubectl runs it as "kubectl afloat", or as "kubectl kruise" if
// it is installed under that name.
package main

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/cli"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/afloat-project/afloat/internal/plugin"
	"github.com/afloat-project/afloat/internal/plugin/terminal"
)

func main() {
	cmdutil.BehaviorOnFatal(func(message string, code int) {
		if message != "" {
			fmt.Fprintln(os.Stderr, strings.TrimSuffix(terminal.Lines(message), "\n"))
		}
		os.Exit(code)
	})
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if err := cli.RunNoErrOutput(plugin.New(os.Args[0], streams)); err != nil {
		cmdutil.CheckErr(err)
	}
}
