// Package plugin implements kubectl afloat. With the manager's own planners it explains why a rollout waits
// and forecasts what a change would do, and it has the commands of OpenKruise's plugin (OPS-130 to OPS-168).
// It needs no more than the user's own rights, and nothing in the cluster except the objects that the user
// looks at.
package plugin

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli/flag"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"
	"k8s.io/kubectl/pkg/util/term"
)

// prefix begins the names of all plugins of kubectl. The rest of the name is the command.
const prefix = "kubectl-"

// New returns the root command. program is the path by which it was started, and determines the name of the
// command.
func New(program string, streams genericiooptions.IOStreams) *cobra.Command {
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(program), prefix), ".exe")
	root := &cobra.Command{
		Use:   name,
		Short: "Roll out, explain and look after workloads that are updated in place",
		Annotations: map[string]string{
			cobra.CommandDisplayNameAnnotation: "kubectl " + name,
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		Run:           func(cmd *cobra.Command, _ []string) { _ = cmd.Help() },
	}

	flags := root.PersistentFlags()
	root.SetGlobalNormalizationFunc(flag.WarnWordSepNormalizeFunc)
	warnings := &warnings{
		asErrors: flags.Bool("warnings-as-errors", false,
			"treat warnings of the API server as errors, and exit with a non-zero code"),
		writer: rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{
			Deduplicate: true,
			Color:       printers.AllowsColorOutput(streams.ErrOut),
		}),
	}

	profile, profiled := &profile{}, func() error { return nil }
	profile.addTo(flags)

	config := genericclioptions.NewConfigFlags(true).
		WithDeprecatedPasswordFlag().
		WithDiscoveryBurst(300).
		WithDiscoveryQPS(50)
	config.AddFlags(flags)
	versioned := cmdutil.NewMatchVersionFlags(config)
	versioned.AddFlags(flags)
	factory := cmdutil.NewFactory(versioned)

	root.PersistentPreRunE = func(*cobra.Command, []string) (err error) {
		rest.SetDefaultWarningHandler(warnings.writer)
		profiled, err = profile.start()
		return err
	}
	root.PersistentPostRunE = func(*cobra.Command, []string) error {
		return errors.Join(profiled(), warnings.err())
	}

	groups := commands(factory, config, streams)
	groups.Add(root)
	templates.ActsAsRootCommand(root, []string{"options"}, groups...)
	completion.SetFactoryForCompletion(factory)

	root.SetOut(term.NewResponsiveWriter(streams.Out))
	root.SetErr(streams.ErrOut)

	return root
}

// warnings counts the warnings of the API server.
type warnings struct {
	asErrors *bool
	writer   interface {
		rest.WarningHandler
		WarningCount() int
	}
}

// err returns an error if there were warnings, and they count as errors.
func (w *warnings) err() error {
	if n := w.writer.WarningCount(); *w.asErrors && n > 0 {
		return fmt.Errorf("%d warnings received", n)
	}
	return nil
}
