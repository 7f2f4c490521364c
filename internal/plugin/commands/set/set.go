// Package set implements the command "set", which changes images, environment, resources and service accounts
// of workloads (OPS-150 to OPS-152).
package set

import (
	"context"
	"fmt"
	"path"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectlset "k8s.io/kubectl/pkg/cmd/set"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// kinds lists the resources that the commands change, for completion.
var kinds = []string{
	"clonesets",
	"statefulsets.apps.kruise.io",
	"daemonsets.apps.kruise.io",
	"sidecarsets",
	"uniteddeployments",
	"broadcastjobs",
	"advancedcronjobs",
	"deployments",
	"statefulsets",
	"daemonsets",
	"replicasets",
	"replicationcontrollers",
	"cronjobs",
	"pods",
}

const resources = `
Possible resources include (case insensitive): cloneset (clone), statefulset.apps.kruise.io (asts), daemonset.apps.kruise.io (ads),
sidecarset,
uniteddeployment (ud), broadcastjob (bcj), advancedcronjob (acj), pod (po), replicationcontroller (rc), deployment (deploy), daemonset
(ds), statefulset
(sts), cronjob (cj), replicaset (rs)`

// New returns the command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set SUBCOMMAND",
		Short: "Set images, environment, resources and more of workloads",
		Long: templates.LongDesc(`
			Set images, environment, resources, service accounts, selectors and subjects.

			Only what differs is sent to the API server, so that fields which this program does not know stay as they are.`),
		Run: cmdutil.DefaultSubCommandRun(streams.ErrOut),
	}
	cmd.AddCommand(
		newImage(f, streams),
		newEnv(f, streams),
		newResources(f, streams),
		newServiceAccount(f, streams),
		kubectlset.NewCmdSelector(f, streams),
		kubectlset.NewCmdSubject(f, streams),
	)
	return cmd
}

// options holds what the commands have in common.
type options struct {
	workload.Selection
	change   *change.Command
	record   *genericclioptions.RecordFlags
	recorder genericclioptions.Recorder
	factory  cmdutil.Factory
	genericiooptions.IOStreams
}

func newOptions(f cmdutil.Factory, streams genericiooptions.IOStreams, operation string) *options {
	return &options{
		change:    change.NewCommand(operation, streams),
		record:    genericclioptions.NewRecordFlags(),
		factory:   f,
		IOStreams: streams,
	}
}

func (o *options) addFlags(cmd *cobra.Command) {
	cmd.ValidArgsFunction = completion.SpecifiedResourceTypeAndNameNoRepeatCompletionFunc(o.factory, kinds)
	o.AddSetFlags(cmd)
	o.change.AddFlags(cmd)
	o.record.AddFlags(cmd)
}

func (o *options) complete(cmd *cobra.Command) (err error) {
	o.change.Local = o.Local
	if err := o.record.Complete(cmd); err != nil {
		return fmt.Errorf("recording the command: %w", err)
	}
	if o.recorder, err = o.record.ToRecorder(); err != nil {
		return fmt.Errorf("recording the command: %w", err)
	}
	return o.change.Complete(cmd)
}

// run changes the objects that args name.
func (o *options) run(ctx context.Context, args []string, edit func(*unstructured.Unstructured) error) error {
	infos, unread := o.Infos(o.factory, args)
	failed := o.change.Each(ctx, infos, func(object *unstructured.Unstructured) error {
		before := object.DeepCopy()
		if err := edit(object); err != nil || equality.Semantic.DeepEqual(before.Object, object.Object) {
			return err
		}
		if err := o.recorder.Record(object); err != nil {
			return fmt.Errorf("recording the command: %w", err)
		}
		return nil
	})
	return utilerrors.NewAggregate(filled(unread, failed))
}

func filled(errs ...error) []error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// matching returns the containers whose names match the pattern, and an error if there are none.
func matching(object *unstructured.Unstructured, pattern string) ([]workload.Container, error) {
	containers, err := workload.Containers(object)
	if err != nil {
		return nil, err
	}

	var found []workload.Container
	for _, c := range containers {
		if ok, err := path.Match(pattern, c.Name()); err != nil {
			return nil, fmt.Errorf("%q is not a pattern of names: %w", pattern, err)
		} else if ok {
			found = append(found, c)
		}
	}

	if len(found) == 0 {
		return nil, fmt.Errorf("unable to find container named %q", pattern)
	}
	return found, nil
}
