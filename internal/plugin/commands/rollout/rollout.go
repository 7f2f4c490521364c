// Package rollout implements the command "rollout", which shows and controls rollouts of workloads (OPS-140
// to OPS-148).
package rollout

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"
)

// Resource types that completion offers for the commands.
var (
	versioned = []string{
		"cloneset",
		"statefulset.apps.kruise.io",
		"daemonset.apps.kruise.io",
		"deployment",
		"statefulset",
		"daemonset",
	}
	followed = append(versioned[:len(versioned):len(versioned)], "uniteddeployment")
	pausable = []string{
		"cloneset",
		"statefulset.apps.kruise.io",
		"daemonset.apps.kruise.io",
		"deployment",
		"sidecarset",
		"broadcastjob",
		"advancedcronjob",
	}
)

// New returns the command. explain describes why a rollout waits. If it is nil, no reason is shown.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams, explain Explain) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout SUBCOMMAND",
		Short: "Follow, pause, restart and undo rollouts",
		Long: templates.LongDesc(`
			Follow, pause, resume, restart and undo rollouts of workloads, and look at their history.

			Valid resource types include: clonesets, statefulsets.apps.kruise.io (asts), daemonsets.apps.kruise.io (ads), uniteddeployments (status
			and
			restart), broadcastjobs, advancedcronjobs and sidecarsets (pause and resume), and deployments, statefulsets and daemonsets.`),
		Example: templates.Examples(`
			# Follow the rollout of a CloneSet to its end
			kubectl afloat rollout status cloneset/web

			# Go back to the revision before
			kubectl afloat rollout undo cloneset/web

			# Restart all pods of a StatefulSet of this project
			kubectl afloat rollout restart asts/db`),
		Run: cmdutil.DefaultSubCommandRun(streams.ErrOut),
	}

	status := NewStatus(f, streams)
	status.Explain = explain
	cmd.AddCommand(
		status.Command(),
		newHistory(f, streams),
		newUndo(f, streams),
		newPause(f, streams),
		newResume(f, streams),
		newRestart(f, streams),
		newApprove(f, streams),
		NewDescribe(f, streams),
	)

	return cmd
}
