package plugin

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	kubectlversion "k8s.io/kubectl/pkg/cmd/version"

	"github.com/afloat-project/afloat/internal/platform/version"
)

// newVersion returns kubectl's command version, which prints the version of the plugin first. Output in JSON
// or YAML is kubectl's alone, so that programs can read it.
func newVersion(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	cmd := kubectlversion.NewCmdVersion(f, streams)
	cmd.Long = "Print the versions of this plugin, of the kubectl in it, and of the API server."
	run := cmd.Run
	cmd.Run = func(cmd *cobra.Command, args []string) {
		if cmd.Flag("output").Value.String() == "" {
			fmt.Fprintln(streams.Out, "Plugin Version:", version.Get())
		}
		run(cmd, args)
	}
	return cmd
}
