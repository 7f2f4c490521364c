package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/registry"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// State is the progress of a pod.
type State string

// States of pods.
const (
	// Done means that nothing remains to be done with the pod.
	Done State = "done"
	// Next means that the next pass does something with the pod.
	Next State = "next"
	// Waiting means that something remains to be done, but must wait.
	Waiting State = "waiting"
)

// Pod is what a plan decides about a pod.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	State     State  `json:"state"`
	// Action is what the next pass does. Reason and Message describe why, or what holds the pod back.
	Action  string `json:"action"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Revision is the revision of the pod.
	Revision string `json:"revision,omitempty"`
	// Restarts lists the containers that an update in place stops.
	Restarts []string `json:"restarts,omitempty"`
	// Until is when the pod is no longer held back, if that depends on time alone. Otherwise it is nil.
	Until *metav1.Time `json:"until,omitempty"`
}

// Explanation is the output of the command why for one object.
type Explanation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UpdateRevision is the revision that pods are moved to.
	UpdateRevision string `json:"updateRevision,omitempty"`
	// Summary holds sentences about the object as a whole. Waiting describes what blocks it although nobody
	// asked for that. Problems describes what is wrong, such as conditions that report a failure.
	Summary  []string `json:"summary,omitempty"`
	Waiting  string   `json:"waiting,omitempty"`
	Problems []string `json:"problems,omitempty"`
	Pods     []Pod    `json:"pods"`
	// Warnings are the latest warning events about the object, one for each reason.
	Warnings []string `json:"warnings,omitempty"`
	// Create is the number of pods that the next pass creates.
	Create int `json:"create,omitempty"`
	// Notes tell the user what could not be read, and what is assumed instead.
	Notes []string `json:"notes,omitempty"`

	now time.Time
	// told means that the explanation has no verdicts on pods.
	told bool
}

// Ask rehearses one pass over the object of a world, and explains it.
func (w *World) Ask(ctx context.Context) (*Explanation, error) {
	player, err := registry.Rehearse(ctx, w.environment, w.Kind, w.Stage, w.more)
	if err != nil {
		return nil, err
	}
	pass, err := w.Stage.Ask(ctx, player, w.Key)
	if err != nil {
		return nil, err
	}

	e := &Explanation{
		Kind:      w.Kind.Name,
		Namespace: w.Object.GetNamespace(),
		Name:      w.Object.GetName(),
		Notes:     w.Notes,
		Pods:      []Pod{},
		Problems:  problems(w.Object),
		Warnings:  w.warnings,
		now:       w.Stage.Now(),
	}

	if pass == nil {
		e.Summary = []string{"nothing is planned: it is gone, or being deleted"}
		return e, nil
	}

	if pass.Failed != "" && len(e.Problems) == 0 {
		e.Problems = []string{pass.Failed}
	}

	e.UpdateRevision, e.Summary, e.Waiting, e.Create =
		pass.UpdateRevision, pass.Summary, pass.Waiting, len(pass.Creations)
	for i := range pass.Verdicts {
		e.Pods = append(e.Pods, podOf(&pass.Verdicts[i]))
	}

	return e, nil
}

func podOf(v *rehearsal.Verdict) Pod {
	p := Pod{
		Namespace: v.Namespace,
		Name:      v.Pod,
		State:     Next,
		Action:    v.Action,
		Reason:    v.Reason,
		Message:   v.Message,
		Revision:  v.Revision,
		Restarts:  v.Restarts,
	}
	if v.Done {
		p.State = Done
	} else if v.Waits {
		p.State = Waiting
	}
	if !v.Until.IsZero() {
		p.Until = &metav1.Time{Time: v.Until}
	}
	return p
}

// problems returns the conditions of a workload that describe a failure, such as FailedUpdate.
func problems(object any) []string {
	var with struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string } `json:"conditions"`
		} `json:"status"`
	}

	text, err := json.Marshal(object)
	if err != nil || json.Unmarshal(text, &with) != nil {
		return nil
	}

	var found []string
	for _, c := range with.Status.Conditions {
		if strings.HasPrefix(c.Type, "Failed") && c.Status == string(corev1.ConditionTrue) {
			found = append(found, fmt.Sprintf("%s: %s", c.Type, c.Message))
		}
	}
	return found
}

var whyLong = templates.LongDesc(`
	Say of each pod of a workload whether it is done, what the next pass of the manager does with it, or which rule it waits for, with which numbers and
	until when.

	The manager's own planner says so, from what is in the cluster at this moment and may be read with your rights. What only the running manager remembers, such
	as requests that the API server refused a moment ago, is in the conditions of the workload and in its events.

	Objects are CloneSets, Advanced StatefulSets (asts), Advanced DaemonSets (ads), BroadcastJobs (bcj) and SidecarSets, or a pod: then its workload and its SidecarSets are asked about it alone. Of an
	AdvancedCronJob (acj) it says when the next run begins, what holds one, and how the latest ended; of a UnitedDeployment (ud) what each subset is given, what is there, and what it
	waits for. Of objects of the project's other kinds it says what their controllers have told: status, conditions and warnings.`)

var whyExample = templates.Examples(`
	# Why does the rollout of CloneSet web wait?
	kubectl afloat why clone/web

	# A line for each pod, also of a large set
	kubectl afloat why clone/web -o wide

	# What happens to this pod?
	kubectl afloat why pod/web-x7k2p

	# When does the schedule run next, and how did it run?
	kubectl afloat why acj/nightly

	# Which subset of UnitedDeployment web waits for what?
	kubectl afloat why ud/web

	# The names of the pods that wait
	kubectl afloat why asts/db -o name`)

// whyOptions holds the options of the command why.
type whyOptions struct {
	genericiooptions.IOStreams
	output           string
	managerNamespace string
}

// NewWhy returns the command why.
func NewWhy(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &whyOptions{IOStreams: streams}
	cmd := &cobra.Command{
		Use:                   "why (KIND NAME | KIND/NAME)... [-o json|yaml|wide|name]",
		DisableFlagsInUseLine: true,
		Short:                 "Say why each pod of a workload is as it is, and what it waits for",
		Long:                  whyLong,
		Example:               whyExample,
		ValidArgsFunction:     completion.ResourceTypeAndNameCompletionFunc(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), f, args)
		},
	}
	addOutput(cmd, &o.output, "wide", "name")
	addManagerNamespace(cmd, &o.managerNamespace)
	return cmd
}

func addManagerNamespace(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "manager-namespace", installation.Namespace,
		"the namespace that the manager is installed in, whose gates and flags count")
}

func (o *whyOptions) run(ctx context.Context, f cmdutil.Factory, args []string) error {
	if err := checkOutput(o.output, "wide", "name"); err != nil {
		return err
	}
	reader, namespace, err := connect(f, o.managerNamespace)
	if err != nil {
		return err
	}
	targets, err := Targets(args)
	if err != nil {
		return err
	}

	var explanations []*Explanation
	var errs []error
	for _, target := range targets {
		found, err := reader.why(ctx, target, namespace)
		if err != nil {
			errs = append(errs, err)
		}
		explanations = append(explanations, found...)
	}

	if err := o.print(explanations); err != nil {
		errs = append(errs, err)
	}
	return errors.NewAggregate(errs)
}

// Target is an argument of the command: a kind as the user wrote it, and a name.
type Target struct{ Kind, Name string }

// Targets parses arguments as kubectl does: either KIND NAME..., or KIND/NAME for each argument.
func Targets(args []string) ([]Target, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("which object? KIND/NAME, such as clone/web")
	}

	var targets []Target
	if !strings.Contains(args[0], "/") {
		if len(args) == 1 {
			return nil, fmt.Errorf("which %s? KIND/NAME, such as clone/web", args[0])
		}
		for _, name := range args[1:] {
			if strings.Contains(name, "/") {
				return nil, fmt.Errorf("%s: either all arguments are KIND/NAME, or the first one is a kind",
					name)
			}
			targets = append(targets, Target{args[0], name})
		}
		return targets, nil
	}

	for _, arg := range args {
		kind, name, found := strings.Cut(arg, "/")
		if !found || kind == "" || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q is not KIND/NAME", arg)
		}
		targets = append(targets, Target{kind, name})
	}
	return targets, nil
}

// why explains one target.
func (r *Reader) why(ctx context.Context, target Target, namespace string) ([]*Explanation, error) {
	of, err := r.Resolve(target.Kind)
	if err != nil {
		return nil, err
	}

	if of == (schema.GroupKind{Kind: "Pod"}) {
		return r.whyPod(ctx, types.NamespacedName{Namespace: namespace, Name: target.Name})
	}

	e, err := r.Why(ctx, of, types.NamespacedName{Namespace: namespace, Name: target.Name})
	if err != nil {
		return nil, err
	}
	return []*Explanation{e}, nil
}

// Why explains one object by the plan of its kind or, if there is none, by its status.
func (r *Reader) Why(
	ctx context.Context, of schema.GroupKind, name types.NamespacedName,
) (*Explanation, error) {
	kind := KindOf(of)
	if of == workloadkind.AdvancedCronJob {
		return r.whySchedule(ctx, name)
	}
	if of == workloadkind.UnitedDeployment {
		return r.whyUnited(ctx, name)
	}

	if kind == nil {
		e, err := r.whyStatus(ctx, of, name)
		if err == nil && of == ephemeralJob.Stored().GroupKind() {
			err = r.whyEphemeral(ctx, e, name)
		}
		return e, err
	}

	if kind.Name == "SidecarSet" {
		name.Namespace = ""
	}

	object, err := r.Get(ctx, kind, name)
	if err != nil {
		return nil, err
	}

	w, err := r.Load(ctx, kind, object)
	if err != nil {
		return nil, err
	}

	w.warnings = r.warnings(ctx, object, r.now())
	return w.Ask(ctx)
}

// advice returns a hint for a kind that no plans are made for.
func advice(of schema.GroupKind) string {
	if of.Group == "apps" && (of.Kind == "StatefulSet" || of.Kind == "DaemonSet") {
		return fmt.Sprintf("it is Kubernetes' own; the %s of this project is %s.apps.kruise.io",
			of.Kind, strings.ToLower(of.Kind))
	}
	return "see kubectl describe"
}

// whyPod explains the workload of a pod, and the SidecarSets that were injected into the pod, reduced to that
// pod.
func (r *Reader) whyPod(ctx context.Context, name types.NamespacedName) ([]*Explanation, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, name, pod); err != nil {
		return nil, err //nolint:wrapcheck // the API server names the object
	}

	var found []*Explanation
	var errs []error
	ask := func(of schema.GroupKind, name types.NamespacedName) {
		e, err := r.Why(ctx, of, name)
		if err != nil {
			errs = append(errs, err)
			return
		}
		e.Pods = slices.DeleteFunc(e.Pods, func(p Pod) bool {
			return p.Name != pod.Name || p.Namespace != pod.Namespace
		})
		found = append(found, e)
	}

	if owner := metav1.GetControllerOf(pod); owner != nil {
		of := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
		if KindOf(of) != nil {
			ask(of, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name})
		}
	}
	for _, set := range pub.InjectedSidecarSets(pod.Annotations[pub.SidecarSetInjectedList]) {
		ask(schema.GroupKind{Group: "apps.kruise.io", Kind: "SidecarSet"}, types.NamespacedName{Name: set})
	}

	if len(found)+len(errs) == 0 {
		return nil, fmt.Errorf("pod %s is of no workload of ours, and no SidecarSet was injected into it",
			pod.Name)
	}
	return found, errors.NewAggregate(errs)
}

// Reason returns a function that describes why the rollout of an object waits, according to the manager's
// planner. That function returns an empty string if the rollout is not blocked, or no plans are made for the
// kind of the object.
func Reason(f cmdutil.Factory) func(
	ctx context.Context, info *resource.Info, managerNamespace string,
) (string, error) {
	return func(ctx context.Context, info *resource.Info, managerNamespace string) (string, error) {
		of := info.Mapping.GroupVersionKind.GroupKind()
		if KindOf(of) == nil {
			return "", nil
		}

		reader, _, err := connect(f, managerNamespace)
		if err != nil {
			return "", err
		}

		e, err := reader.Why(ctx, of, types.NamespacedName{Namespace: info.Namespace, Name: info.Name})
		if err != nil {
			return "", err
		}
		return e.Reason(), nil
	}
}

// Reason returns what blocks the workload as a whole, or else what most of its pods wait for.
func (e *Explanation) Reason() string {
	if e.Waiting != "" {
		return e.Waiting
	}

	counts, words := map[string]int{}, map[string]string{}
	most := ""
	for _, p := range e.Pods {
		if p.State != Waiting {
			continue
		}
		counts[p.Reason]++
		words[p.Reason] = p.Message
		if counts[p.Reason] > counts[most] {
			most = p.Reason
		}
	}

	if most == "" {
		return ""
	}
	return fmt.Sprintf("%s: %s: %s", most, wording.Count(counts[most], "pod"), words[most])
}
