package explain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/apply"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"
	"k8s.io/utils/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/workload"
	"github.com/afloat-project/afloat/internal/registry"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

var planLong = templates.LongDesc(`
	Say what would become of the pods if manifests were applied: which are updated in place, and which of their containers restart; which are recreated, and because of
	what; in which order and waves; and what would hold the rollout.

	The manifests are applied as dry runs by the API server, with all its admission, and the manager's own code then plays the rollout on a copy of what you may read. Nothing is
	written. Pods are taken to become ready as soon as they can, pods that are not ready now stay so until they are touched, and whoever answers lifecycle hooks is taken to do
	so at once. What webhooks of others add to new pods is not known. The times are the shortest possible: minReadySeconds, grace periods and the like, without images being pulled and
	applications starting.

	Objects with pods that no plans are made for, such as a UnitedDeployment, are an error if they change; the plans of the others are printed.

	The exit code is 0 if no pod is touched, 1 after an error, 2 if pods are created or updated in place, 3 if pods are recreated or deleted, and 4 if the rollout would not
	end by itself.`)

var planExample = templates.Examples(`
	# What would this manifest do?
	kubectl afloat plan -f web.yaml

	# What would another image do?
	kubectl afloat set image clone/web app=nginx:1.29 --dry-run=client -o yaml | kubectl afloat plan -f -`)

// Exit codes of plan.
const (
	codeTouched   = 2
	codeRecreated = 3
	codeHeld      = 4
)

// Step describes what is done with one pod.
type Step struct {
	// Pod is the name of the pod. It is empty if the pod is created and has no name yet.
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Action is create, update in place, recreate, delete, adopt, release, or what a SidecarSet does.
	Action   string   `json:"action"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Restarts []string `json:"restarts,omitempty"`
}

// Wave is what is done before the next pods must become ready.
type Wave struct {
	// AfterSeconds is the earliest time of the wave, counted from the beginning.
	AfterSeconds int64 `json:"afterSeconds"`
	// Hooks are the lifecycle hooks that had to release pods before.
	Hooks []string `json:"hooks,omitempty"`
	Steps []Step   `json:"steps"`
}

// Preview is the output of the command plan for one object.
type Preview struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// New means that the object does not exist yet, and Unchanged that it matches the manifest already.
	New       bool `json:"new,omitempty"`
	Unchanged bool `json:"unchanged,omitempty"`
	// UpdateRevision is the revision that pods are moved to.
	UpdateRevision string `json:"updateRevision,omitempty"`
	Waves          []Wave `json:"waves"`
	// TakesSeconds is the minimum duration of the rollout.
	TakesSeconds int64 `json:"takesSeconds"`
	// Left lists the pods that are not done in the end, and those that the partition keeps.
	Left []Pod `json:"left,omitempty"`
	// Held describes what blocks the rollout in the end, or why the forecast ends before the rollout. It is
	// empty if the rollout is complete, or blocked by what the user asked for.
	Held string `json:"held,omitempty"`
	// Warnings holds the messages of the warning events that the manager would record, by reason.
	Warnings map[string]string `json:"warnings,omitempty"`
	Notes    []string          `json:"notes,omitempty"`
}

// code returns the exit code for one object.
func (p *Preview) code() int {
	code := 0
	for _, wave := range p.Waves {
		for _, step := range wave.Steps {
			switch step.Action {
			case "recreate", "delete":
				code = codeRecreated
			default:
				code = max(code, codeTouched)
			}
		}
	}
	if p.Held != "" {
		code = codeHeld
	}
	return code
}

// defaultTimeout bounds the time for making all plans.
const defaultTimeout = 2 * time.Minute

// planOptions holds the options of the command plan.
type planOptions struct {
	genericiooptions.IOStreams
	files            genericclioptions.FileNameFlags
	output           string
	managerNamespace string
	selector         string
	serverSide       bool
	forceConflicts   bool
	timeout          time.Duration
}

// NewPlan returns the command plan.
func NewPlan(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	names, kustomize, recursive := []string{}, "", false
	o := &planOptions{
		IOStreams: streams,
		files: genericclioptions.FileNameFlags{
			Usage:     "that contains the manifests to plan for",
			Filenames: &names,
			Kustomize: &kustomize,
			Recursive: &recursive,
		},
	}
	cmd := &cobra.Command{
		Use:                   "plan (-f FILENAME | -k DIRECTORY) [-o json|yaml|wide]",
		DisableFlagsInUseLine: true,
		Short:                 "Say what would become of the pods if a manifest were applied",
		Long:                  planLong,
		Example:               planExample,
		Args:                  cobra.NoArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), f) },
	}

	o.files.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "take only the objects with these labels")
	cmd.Flags().BoolVar(&o.serverSide, "server-side", false,
		"apply as kubectl apply --server-side does")
	cmd.Flags().BoolVar(&o.forceConflicts, "force-conflicts", false,
		"with --server-side, take fields over from other managers")
	cmd.Flags().DurationVar(&o.timeout, "timeout", defaultTimeout,
		"for how long plans are made; 0 means without end")
	addOutput(cmd, &o.output, "wide")
	addManagerNamespace(cmd, &o.managerNamespace)
	return cmd
}

func (o *planOptions) run(ctx context.Context, f cmdutil.Factory) error {
	if err := checkOutput(o.output, "wide"); err != nil {
		return err
	}

	documents, err := o.dryRun(f)
	if err != nil {
		return err
	}

	reader, _, err := connect(f, o.managerNamespace)
	if err != nil {
		return err
	}

	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}

	previews, failed := o.previews(ctx, reader, documents)
	if err := o.print(previews); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}

	code := 0
	for _, preview := range previews {
		code = max(code, preview.code())
	}

	if code != 0 {
		return exec.CodeExitError{Err: errors.New(""), Code: code}
	}
	return nil
}

// previews returns the previews of all objects that plans are made for, with an error for each one that
// failed.
func (o *planOptions) previews(
	ctx context.Context, reader *Reader, documents []*unstructured.Unstructured,
) (previews []*Preview, _ error) {
	var errs []error
	for _, document := range documents {
		preview, err := o.preview(ctx, reader, document, documents)
		if err != nil {
			errs = append(errs, err)
		} else if preview != nil {
			previews = append(previews, preview)
		}
	}
	return previews, utilerrors.NewAggregate(errs)
}

// preview returns the preview of one object. For a kind without plans it returns nil if the object has no
// pods of its own or does not change, and an error if it changes.
func (o *planOptions) preview(
	ctx context.Context, reader *Reader,
	document *unstructured.Unstructured, all []*unstructured.Unstructured,
) (*Preview, error) {
	if kind := KindOf(document.GroupVersionKind().GroupKind()); kind != nil {
		wanted, err := Typed(kind, document)
		if err != nil {
			return nil, err
		}
		return reader.Preview(ctx, kind.Name, wanted, all)
	}

	name := document.GetKind() + " " + document.GetName()

	scheduled := workloadkind.Of(workload.Kind(document)).Schedule
	if specs, _ := workload.PodSpecs(document); len(specs) == 0 || scheduled {
		fmt.Fprintf(o.ErrOut, "Note: no plans are made for %s: it has no pods of its own\n", name)
		return nil, nil
	}

	present := &unstructured.Unstructured{}
	present.SetGroupVersionKind(document.GroupVersionKind())
	if err := reader.client.Get(ctx, client.ObjectKeyFromObject(document),
		present); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	if equality.Semantic.DeepEqual(present.Object["spec"], document.Object["spec"]) {
		fmt.Fprintf(o.ErrOut, "Note: %s is as the manifest wants it\n", name)
		return nil, nil
	}
	return nil, fmt.Errorf("no plans are made for %s: what becomes of its pods is not known", name)
}

// dryRun returns the manifests as the API server would store them.
func (o *planOptions) dryRun(f cmdutil.Factory) ([]*unstructured.Unstructured, error) {
	out := &bytes.Buffer{}
	flags := apply.NewApplyFlags(genericiooptions.IOStreams{In: o.In, Out: out, ErrOut: o.ErrOut})
	cmd := &cobra.Command{}
	flags.AddFlags(cmd)

	set := map[string][]string{"dry-run": {"server"}, "output": {"json"}, "filename": *o.files.Filenames}
	if *o.files.Kustomize != "" {
		set["kustomize"] = []string{*o.files.Kustomize}
	}
	for name, on := range map[string]bool{
		"recursive":       *o.files.Recursive,
		"server-side":     o.serverSide,
		"force-conflicts": o.forceConflicts,
	} {
		if on {
			set[name] = []string{"true"}
		}
	}

	if o.selector != "" {
		set["selector"] = []string{o.selector}
	}

	for name, values := range set {
		for _, value := range values {
			if err := cmd.Flags().Set(name, value); err != nil {
				return nil, fmt.Errorf("--%s: %w", name, err)
			}
		}
	}

	applying, err := flags.ToOptions(f, cmd, "kubectl", nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // kubectl's words
	}
	if err := applying.Validate(); err != nil {
		return nil, err //nolint:wrapcheck // kubectl's words
	}
	if err := applying.Run(); err != nil {
		return nil, err //nolint:wrapcheck // kubectl's words
	}

	var documents []*unstructured.Unstructured
	decoder := json.NewDecoder(out)
	for decoder.More() {
		document := &unstructured.Unstructured{}
		if err := decoder.Decode(&document.Object); err != nil {
			return nil, fmt.Errorf("reading what the API server answered: %w", err)
		}
		if !document.IsList() {
			documents = append(documents, document)
			continue
		}

		list, err := document.ToList()
		if err != nil {
			return nil, fmt.Errorf("reading what the API server answered: %w", err)
		}
		for i := range list.Items {
			documents = append(documents, &list.Items[i])
		}
	}
	return documents, nil
}

// Preview forecasts what happens to the pods if the object becomes the wanted one. PodUnavailableBudgets
// among the other documents are applied as well.
func (r *Reader) Preview(
	ctx context.Context, kindName string, wanted client.Object, others []*unstructured.Unstructured,
) (*Preview, error) {
	kind := kindByName(kindName)
	preview := &Preview{
		Kind:      kindName,
		Namespace: wanted.GetNamespace(),
		Name:      wanted.GetName(),
		Waves:     []Wave{},
	}

	present, err := r.Get(ctx, kind, client.ObjectKeyFromObject(wanted))
	switch {
	case apierrors.IsNotFound(err):
		preview.New, present = true, wanted
	case err != nil:
		return nil, err
	default:
		preview.Unchanged = sameSpec(present, wanted)
	}

	w, err := r.Load(ctx, kind, present, wanted)
	if err != nil {
		return nil, err
	}

	if !preview.New {
		w.become(wanted)
	}

	if err := w.takeBudgets(others); err != nil {
		return nil, err
	}

	forecast, err := w.Play(ctx)
	if err != nil {
		return nil, err
	}
	preview.fill(w, forecast)
	return preview, nil
}

// become replaces the object of a world with the wanted one, and keeps the status.
func (w *World) become(wanted client.Object) {
	if before, after := replicasOf(w.Object), replicasOf(wanted); before != nil && after != nil {
		w.more[w.Object.GetUID()] = *after - *before
	}

	w.Stage.Change(w.Key, func(present client.Object) {
		generation := present.GetGeneration()
		status := reflect.ValueOf(present).Elem().FieldByName("Status").Interface()
		version := present.GetResourceVersion()

		reflect.ValueOf(present).Elem().Set(reflect.ValueOf(wanted.DeepCopyObject()).Elem())
		reflect.ValueOf(present).Elem().FieldByName("Status").Set(reflect.ValueOf(status))

		present.SetGeneration(max(generation+1, wanted.GetGeneration()))
		present.SetResourceVersion(version)
	})
}

// takeBudgets puts the budgets among the documents on the stage. Budgets that exist keep their status.
func (w *World) takeBudgets(documents []*unstructured.Unstructured) error {
	const name = "PodUnavailableBudget"
	kind := kindByName(name)
	for _, document := range documents {
		if document.GetKind() != name || document.GroupVersionKind().Group != kind.Group {
			continue
		}

		typed, err := Typed(kind, document)
		if err != nil {
			return err
		}

		budget, ok := typed.(*policyv1beta1.PodUnavailableBudget)
		if !ok {
			continue
		}

		key := w.Stage.KeyOf(name, budget)
		if w.Stage.Get(key) == nil {
			w.Stage.Add(name, budget)
			continue
		}

		w.Stage.Change(key, func(o client.Object) {
			present, ok := o.(*policyv1beta1.PodUnavailableBudget)
			if ok {
				if !equality.Semantic.DeepEqual(present.Spec.Selector, budget.Spec.Selector) ||
					!equality.Semantic.DeepEqual(present.Spec.TargetReference, budget.Spec.TargetReference) {
					present.Status = policyv1beta1.PodUnavailableBudgetStatus{} // it counted other pods
				}

				present.Spec, present.Annotations = budget.Spec, budget.Annotations
				present.Generation++
			}
		})
	}
	return nil
}

// Play alternates passes of the manager and of kubelets until nothing happens any more.
func (w *World) Play(ctx context.Context) (*rehearsal.Forecast, error) {
	player, err := registry.Rehearse(ctx, w.environment, w.Kind, w.Stage, w.more)
	if err != nil {
		return nil, err
	}
	return w.Stage.Play(ctx, player, w.Key)
}

// fill sets the results of a forecast.
func (p *Preview) fill(w *World, f *rehearsal.Forecast) {
	p.Notes, p.Warnings, p.TakesSeconds = w.Notes, f.Events, seconds(f.Took)

	for _, wave := range f.Waves {
		shown := Wave{AfterSeconds: seconds(wave.After), Hooks: wave.Hooks, Steps: []Step{}}
		for _, step := range wave.Steps {
			action := step.Action
			name := step.Pod
			if step.Created {
				action = "create"
				if w.Kind.Name == "CloneSet" {
					name = "" // CloneSets choose names at random
				}
			}

			shown.Steps = append(shown.Steps, Step{
				Pod:       name,
				Namespace: step.Namespace,
				Action:    action,
				Reason:    step.Reason,
				Message:   step.Message,
				Restarts:  step.Restarts,
			})
		}
		p.Waves = append(p.Waves, shown)
	}

	p.Held = f.Cut
	if f.Last == nil {
		return
	}

	p.UpdateRevision, p.Held = f.Last.UpdateRevision, cmp.Or(f.Cut, f.Last.Waiting, f.Last.Failed)
	for i := range f.Last.Verdicts {
		if pod := podOf(&f.Last.Verdicts[i]); pod.State != Done || pod.Reason == "Partition" {
			p.Left = append(p.Left, pod)
		}
	}
}

func seconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }

// sameSpec reports whether two versions of an object have equal specs, annotations and labels.
func sameSpec(a, b client.Object) bool {
	return equality.Semantic.DeepEqual(specOf(a), specOf(b)) &&
		equality.Semantic.DeepEqual(a.GetAnnotations(), b.GetAnnotations()) &&
		equality.Semantic.DeepEqual(a.GetLabels(), b.GetLabels())
}

func specOf(object client.Object) map[string]any {
	var with struct {
		Spec map[string]any `json:"spec"`
	}
	if text, err := json.Marshal(object); err != nil || json.Unmarshal(text, &with) != nil {
		return nil
	}
	return with.Spec
}

// replicasOf returns the number of replicas of a workload, or nil if its spec has none.
func replicasOf(object client.Object) *int32 {
	var with struct {
		Spec struct {
			Replicas *int32 `json:"replicas"`
		} `json:"spec"`
	}
	if text, err := json.Marshal(object); err != nil || json.Unmarshal(text, &with) != nil {
		return nil
	}
	return with.Spec.Replicas
}
