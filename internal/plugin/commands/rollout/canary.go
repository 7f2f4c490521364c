package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/terminal"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// The rest of this file is about Rollouts of rollouts.kruise.io. That is a separate project, and no package
// of this project has its API.
const (
	rollouts = "rollouts.rollouts.kruise.io"
	// stepPaused is the state of a step that waits for approval, and stepReady that of an approved step.
	stepPaused, stepReady = "StepPaused", "StepReady"
)

// errNotServed is returned if the API server does not know Rollouts.
var errNotServed = errors.New(
	"the API server does not serve rollouts.kruise.io: OpenKruise Rollouts is not installed")

// namedRollouts reads the Rollouts that the arguments name, with or without their type.
func namedRollouts(
	f cmdutil.Factory, selection *workload.Selection, args []string,
) ([]*resource.Info, error) {
	mapper, err := f.ToRESTMapper()
	if err != nil {
		return nil, err
	}

	if _, err := mapper.RESTMapping(workload.Rollout); meta.IsNoMatchError(err) {
		return nil, errNotServed
	} else if err != nil {
		return nil, err
	}

	names := []string{}
	for _, arg := range args {
		kind, name, typed := strings.Cut(arg, "/")
		switch {
		case !typed:
			name = kind
		case kind != "rollout" && kind != "rollouts" && kind != "rollout.rollouts.kruise.io" &&
			kind != rollouts:
			return nil, fmt.Errorf("%s is no Rollout", arg)
		}

		names = append(names, rollouts+"/"+name)
	}

	return selection.Infos(f, names)
}

// ofRollouts returns a command that takes names of Rollouts as arguments and calls do for each of them.
func ofRollouts(f cmdutil.Factory, do func(context.Context, *resource.Info) error) *cobra.Command {
	selection := &workload.Selection{}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completion.ResourceNameCompletionFunc(f, rollouts),
		RunE: func(cmd *cobra.Command, args []string) error {
			infos, err := namedRollouts(f, selection, args)
			failed := []error{err}
			for _, info := range infos {
				if err := do(cmd.Context(), info); err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", change.Name(info), err))
				}
			}
			return utilerrors.NewAggregate(failed)
		},
	}

	selection.AddFlags(cmd)
	return cmd
}

func newApprove(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	changes := change.NewCommand("approved", streams)
	cmd := ofRollouts(f, func(ctx context.Context, info *resource.Info) error {
		return changes.One(ctx, info, approve)
	})

	cmd.Use, cmd.Short = "approve ROLLOUT",
		"Let a Rollout of rollouts.kruise.io go on that is paused at a step"
	cmd.Long = templates.LongDesc(`
		Let a Rollout go on that is paused at a step and waits for approval.

		It works where OpenKruise Rollouts is installed.`)
	cmd.Example = templates.Examples(`
		# Approve the step at which a Rollout waits
		kubectl afloat rollout approve rollout/web`)

	changes.AddFlags(cmd)
	changes.Subresource = "status"
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return changes.Complete(cmd) }
	return cmd
}

// strategies lists the members of spec.strategy. Each of them has its own part of the status, which contains
// the current step.
var strategies = []string{"canary", "blueGreen"}

// current returns the strategy of a Rollout that has a current step, and the path of its part of the status.
func current(object *unstructured.Unstructured) (strategy string, path workload.Path, ok bool) {
	for _, strategy := range strategies {
		path := workload.Path{"status", strategy + "Status"}
		if _, ok, _ := unstructured.NestedMap(object.Object, path...); ok {
			return strategy, path, true
		}
	}
	return "", nil, false
}

// approve changes the state of the current step from paused to ready.
func approve(object *unstructured.Unstructured) error {
	_, path, ok := current(object)
	if !ok {
		return errors.New("it is not rolling out")
	}

	state := path.Child("currentStepState")
	if is := text(object, state...); is != stepPaused {
		return fmt.Errorf("it does not wait for approval: step %d is in state %s",
			number(object, 0, path.Child("currentStepIndex")...), cmp.Or(is, "unknown"))
	}

	return unstructured.SetNestedField(object.Object, stepReady, state...)
}

// rollout undoes the workload of a Rollout. With --fast it also approves the step at which the Rollout is
// paused.
func (u *undo) rollout(ctx context.Context, info *resource.Info, object *unstructured.Unstructured) error {
	of, err := u.workloadOf(object)
	if err != nil {
		return err
	}

	if err := u.one(ctx, of); err != nil {
		return fmt.Errorf("%s: %w", change.Name(of), err)
	}

	_, path, ok := current(object)
	if !u.fast || !ok || text(object, path.Child("currentStepState")...) != stepPaused {
		return nil
	}

	options := u.change.Options
	options.Subresource = "status"
	if _, err := change.Apply(ctx, info, options, approve); err != nil {
		return err
	}

	return u.change.Print(info.Object, "approved")
}

// reference returns the reference of a Rollout to its workload.
func reference(object *unstructured.Unstructured) (apiVersion, kind, name string) {
	at := workload.Path{"spec", "workloadRef"}
	if _, ok, _ := unstructured.NestedMap(object.Object, at...); !ok {
		at = workload.Path{"spec", "objectRef", "workloadRef"} // the path in v1alpha1
	}

	return text(object, at.Child("apiVersion")...),
		text(object, at.Child("kind")...),
		text(object, at.Child("name")...)
}

// workloadOf reads the workload of a Rollout.
func (u *undo) workloadOf(object *unstructured.Unstructured) (*resource.Info, error) {
	apiVersion, kind, name := reference(object)
	if kind == "" || name == "" {
		return nil, errors.New("it names no workload")
	}

	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("its workload: %w", err)
	}

	mapper, err := u.factory.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	mapping, err := mapper.RESTMapping(version.WithKind(kind).GroupKind(), version.Version)
	if err != nil {
		return nil, fmt.Errorf("its workload: %w", err)
	}

	client, err := u.factory.UnstructuredClientForMapping(mapping)
	if err != nil {
		return nil, err
	}

	info := &resource.Info{Client: client, Mapping: mapping, Namespace: object.GetNamespace(), Name: name}
	if err := info.Get(); err != nil {
		return nil, fmt.Errorf("its workload: %w", err)
	}
	return info, nil
}

// NewDescribe returns the command that describes Rollouts of rollouts.kruise.io.
func NewDescribe(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	cmd := ofRollouts(f, func(_ context.Context, info *resource.Info) error {
		object, err := change.Document(info)
		if err != nil {
			return err
		}
		return describeRollout(streams.Out, object)
	})

	cmd.Use, cmd.Short = "describe ROLLOUT", "Say how far a Rollout of rollouts.kruise.io is, step by step"
	cmd.Long = templates.LongDesc(`
		Say of a Rollout which workload it is about, how far it is, and which steps it has.

		It works where OpenKruise Rollouts is installed.`)
	cmd.Example = templates.Examples(`
		# Look at a Rollout
		kubectl afloat rollout describe rollout/web`)

	return cmd
}

// describeRollout writes the progress of a Rollout, step by step.
func describeRollout(out io.Writer, object *unstructured.Unstructured) error {
	w := tabwriter.NewWriter(terminal.Writer(out), 0, 8, 2, ' ', 0)
	_, kind, name := reference(object)
	fmt.Fprintf(w, "Name:\t%s\nNamespace:\t%s\nWorkload:\t%s/%s\n",
		object.GetName(), object.GetNamespace(), kind, name)
	fmt.Fprintf(w, "Phase:\t%s\nMessage:\t%s\n",
		cmp.Or(text(object, "status", "phase"), "unknown"), cmp.Or(text(object, "status", "message"), "none"))

	strategy, path, running := current(object)
	for _, name := range strategies {
		if _, ok, _ := unstructured.NestedMap(object.Object, "spec", "strategy", name); ok && !running {
			strategy = name
		}
	}

	fmt.Fprintf(w, "Strategy:\t%s\n", cmp.Or(strategy, "unknown"))

	if running {
		fmt.Fprintf(w, "Step:\t%d, %s\n", number(object, 0, path.Child("currentStepIndex")...),
			cmp.Or(text(object, path.Child("currentStepState")...), "unknown"))
		fmt.Fprintf(w, "Revisions:\tfrom %s to %s\n",
			cmp.Or(text(object, path.Child("stableRevision")...), "unknown"),
			cmp.Or(text(object, path.Child("canaryRevision")...),
				text(object, path.Child("updatedRevision")...), "unknown"))

		updated := path.Child("canaryReplicas")
		ready := path.Child("canaryReadyReplicas")
		if strategy == "blueGreen" {
			updated, ready = path.Child("updatedReplicas"), path.Child("updatedReadyReplicas")
		}
		fmt.Fprintf(w, "Pods:\t%d updated, %d of them ready\n",
			number(object, 0, updated...), number(object, 0, ready...))
	}

	steps, _, err := unstructured.NestedSlice(object.Object, "spec", "strategy", strategy, "steps")
	if err != nil {
		return err
	}

	if len(steps) > 0 {
		fmt.Fprintf(w, "Steps:\n  \tSTEP\tTRAFFIC\tREPLICAS\tPAUSE\n")
	}

	for i, one := range steps {
		step, _ := one.(map[string]any)
		mark := " "
		if running && number(object, 0, path.Child("currentStepIndex")...) == i+1 {
			mark = ">"
		}

		pause := "until it is approved"
		if seconds, ok, _ := unstructured.NestedFieldNoCopy(step, "pause", "duration"); ok {
			pause = fmt.Sprintf("%v s", seconds)
		}

		traffic := shown(step["traffic"])
		if weight, ok := step["weight"]; ok { // v1alpha1 has a weight instead
			traffic = fmt.Sprintf("%v%%", weight)
		}

		fmt.Fprintf(w, " %s\t%d\t%s\t%s\t%s\n", mark, i+1, traffic, shown(step["replicas"]), pause)
	}

	return w.Flush()
}

func shown(value any) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprint(value)
}
