package rollout

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

func newPause(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	cmd := editing(f, change.NewCommand("paused", streams), pausable,
		func(object *unstructured.Unstructured) error { return SetPaused(object, true) })
	cmd.Use, cmd.Short = "pause RESOURCE", "Pause rollouts"
	cmd.Long = templates.LongDesc(`
		Pause rollouts. A paused workload updates no more pods until it is resumed, and goes on to look after those that it has.

		It works with CloneSets, StatefulSets and DaemonSets of this project, SidecarSets, BroadcastJobs, AdvancedCronJobs and Deployments.`)
	cmd.Example = templates.Examples(`
		# Pause the rollout of a CloneSet
		kubectl afloat rollout pause cloneset/web`)
	return cmd
}

func newResume(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	cmd := editing(f, change.NewCommand("resumed", streams), pausable,
		func(object *unstructured.Unstructured) error { return SetPaused(object, false) })
	cmd.Use, cmd.Short = "resume RESOURCE", "Resume paused rollouts"
	cmd.Long = templates.LongDesc(`
		Resume paused rollouts.

		It works with CloneSets, StatefulSets and DaemonSets of this project, SidecarSets, BroadcastJobs, AdvancedCronJobs and Deployments.`)
	cmd.Example = templates.Examples(`
		# Resume the rollout of a CloneSet
		kubectl afloat rollout resume cloneset/web`)
	return cmd
}

// SetPaused pauses or resumes an object.
func SetPaused(object *unstructured.Unstructured, paused bool) error {
	path, ok := workload.Paused(object)
	switch is := workload.IsPaused(object); {
	case !ok:
		return fmt.Errorf("a %s cannot be paused", object.GetKind())
	case is && paused:
		return errors.New("is already paused")
	case !is && !paused:
		return errors.New("is not paused")
	case !paused:
		unstructured.RemoveNestedField(object.Object, path...)
		return nil
	}
	return unstructured.SetNestedField(object.Object, true, path...)
}

// editing returns a command that changes all objects that its arguments name.
func editing(
	f cmdutil.Factory, changes *change.Command, kinds []string, edit func(*unstructured.Unstructured) error,
) *cobra.Command {
	selection := &workload.Selection{}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completion.SpecifiedResourceTypeAndNameCompletionFunc(f, kinds),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := changes.Complete(cmd); err != nil {
				return err
			}

			infos, unread := selection.Infos(f, args)
			failed := changes.Each(cmd.Context(), infos, edit)
			return utilerrors.NewAggregate([]error{unread, failed})
		},
	}

	selection.AddFlags(cmd)
	changes.AddFlags(cmd)
	return cmd
}
