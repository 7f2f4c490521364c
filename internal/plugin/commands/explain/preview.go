package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/registry"
	"github.com/afloat-project/afloat/internal/rehearsal"
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
