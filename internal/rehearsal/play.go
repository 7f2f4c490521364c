package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/memcluster"
)

// Step is what is done with one pod, described by its verdict.
type Step struct {
	Verdict
	// Created means that the pod is new.
	Created bool
}

// Wave is what is done before the next pods must become ready.
type Wave struct {
	// After is the earliest time of the wave, counted from the beginning.
	After time.Duration
	// Hooks are the lifecycle hooks that had to release pods before.
	Hooks []string
	Steps []Step
}

// Forecast predicts what will happen to an object.
type Forecast struct {
	Waves []Wave
	// Last is the last pass. It shows which pods are left, and why.
	Last *Pass
	// Took is the minimum duration of the rollout, with minReadySeconds, grace periods and the like.
	Took time.Duration
	// Cut is the reason why the forecast ends before the rollout. It is empty if nothing more would happen.
	Cut string
	// Events holds the last message of the warning events that would be recorded, by reason.
	Events map[string]string
}

// Limits of a forecast.
const (
	mostRounds = 100_000
	mostStill  = 20
	longest    = 30 * 24 * time.Hour
)

// play is a forecast in progress.
type play struct {
	*Stage
	Forecast
	begun time.Time
	key   memcluster.Key
	hooks *pub.Lifecycle
	open  bool // the last wave takes more steps
	freed []string
	// still counts how often only time has passed since anything changed.
	still int
	// stirred holds the pods that changed since the kubelets last had nothing to do with them. gone means
	// that an object was removed since the last garbage collection.
	stirred map[string]bool
	gone    bool
	// count is when budgets must be counted again even if nothing happens. It is zero for never.
	count time.Time
	// counted is the number of the manager's writes when budgets were last counted.
	counted int
}

// Play alternates passes over an object with the kubelets until nothing more would happen.
func (s *Stage) Play(ctx context.Context, player Player, key memcluster.Key) (*Forecast, error) {
	p := &play{
		Stage:   s,
		begun:   s.Now(),
		key:     key,
		hooks:   hooksOf(s.Get(key)),
		stirred: map[string]bool{},
		gone:    true,
	}
	for _, object := range s.List("Pod", false) {
		p.stirred[s.KeyOf("Pod", object).Name] = true
	}

	s.AfterWrite, s.Happened = p.thaw, p.happened
	defer func() { s.AfterWrite, s.Happened = nil, nil }()

	s.warnings = map[string]string{}
	s.Deliver(everything)
	if err := p.recount(ctx); err != nil {
		return nil, err
	}

	for range mostRounds {
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			p.Cut = "the time is over in which plans are made (--timeout)"
			return p.end(), nil
		} else if err != nil {
			return nil, err
		}
		pass, err := s.Ask(ctx, player, key)
		if err != nil {
			return nil, err
		}
		if pass == nil || s.Get(key).GetDeletionTimestamp() != nil {
			p.Cut = "it is being deleted"
			return p.end(), nil
		}
		p.Last = pass
		if p.note(pass) || pass.Unfinished || s.Undelivered() > 0 {
			continue
		}
		p.open = false
		if p.kubelets() {
			p.still = 0
			if err := p.recount(ctx); err != nil {
				return nil, err
			}
			continue
		}
		// Bookings expire even if no kubelet has anything to do.
		if p.Recount != nil && p.counted != len(p.Writes) {
			if err := p.recount(ctx); err != nil {
				return nil, err
			}
			continue
		}
		switch on, err := p.moves(ctx, pass.After); {
		case err != nil:
			return nil, err
		case !on:
			return p.end(), nil
		}
	}

	p.Cut = fmt.Sprintf("more than %d passes", mostRounds)
	return p.end(), nil
}

// recount counts the budgets again.
func (p *play) recount(ctx context.Context) error {
	if p.Recount == nil {
		return nil
	}

	p.counted = len(p.Writes)
	again, err := p.Recount(ctx)
	if err != nil {
		return fmt.Errorf("counting budgets: %w", err)
	}

	p.count = time.Time{}
	if again > 0 {
		p.count = p.Now().Add(again)
	}

	return nil
}

// moves continues what waits for hooks or for time, and reports whether there was anything. after is the time
// until the next pass.
func (p *play) moves(ctx context.Context, after time.Duration) (bool, error) {
	if p.answerHooks() {
		return true, nil
	}

	counts := false
	if left := p.count.Sub(p.Now()); !p.count.IsZero() && (after <= 0 || left <= after) {
		after, counts = left, true
	}

	switch {
	// The limit of p.still does not apply while p.count is set, because bookings of budgets expire with time.
	case after <= 0 && !counts, p.count.IsZero() && p.still > mostStill+2*len(p.Last.Verdicts):
		return false, nil
	case p.Now().Add(after).Sub(p.begun) > longest:
		p.Cut = "what comes next is more than 30 days away"
		return false, nil
	}

	p.still++
	p.Pass(max(after, 0))
	if counts {
		return true, p.recount(ctx)
	}

	return true, nil
}

func (p *play) end() *Forecast {
	p.Took, p.Events = p.Now().Sub(p.begun), p.warnings
	if n := len(p.Waves); n > 0 && p.Cut == "" && p.Took > longest {
		p.Took = p.Waves[n-1].After
	}
	return &p.Forecast
}

// note adds what a pass did to the open wave, and reports whether it did anything.
func (p *play) note(pass *Pass) bool {
	if len(pass.Done) == 0 {
		return false
	}
	p.still = 0
	if !p.open {
		p.Waves = append(p.Waves, Wave{After: p.Now().Sub(p.begun), Hooks: p.freed})
		p.open, p.freed = true, nil
	}
	wave := &p.Waves[len(p.Waves)-1]
	wave.Steps = append(wave.Steps, pass.Done...)
	return true
}

// thaw unfreezes a pod that was not ready, once its spec is changed or it is deleted.
func (p *play) thaw(w memcluster.Write) {
	if w.Key.Kind != "Pod" || !p.Kubelet.Frozen[w.Key.Name] {
		return
	}
	pod, _ := p.Get(w.Key).(*corev1.Pod)
	if w.Verb == "delete" || pod == nil || pod.Generation != p.untouched[w.Key.Name] {
		delete(p.Kubelet.Frozen, w.Key.Name)
	}
}

// happened records that the kubelet must check a pod.
func (p *play) happened(key memcluster.Key, gone bool) {
	p.gone = p.gone || gone
	if key.Kind == "Pod" && !gone {
		p.stirred[key.Name] = true
	}
}

// kubelets runs the kubelets of all changed pods until nothing changes, and reports whether anything did.
func (p *play) kubelets() bool {
	moved := false
	for len(p.stirred) > 0 {
		names := slices.Sorted(maps.Keys(p.stirred))
		p.stirred = map[string]bool{}
		for _, name := range names {
			if p.Kubelet.Step(name) {
				moved = true
			}
		}
		p.gates(names)
	}

	if p.gone {
		p.gone = false
		p.CollectGarbage()
	}

	return moved
}

// gates sets the readiness gates of new pods that other controllers set in a cluster.
func (p *play) gates(names []string) {
	for _, name := range names {
		key := memcluster.Key{Kind: "Pod", Name: name}
		pod, ok := p.Get(key).(*corev1.Pod)
		if !ok || readiness.Ready(pod) || p.Kubelet.Frozen[name] {
			continue
		}
		var closed []corev1.PodConditionType
		for _, gate := range pod.Spec.ReadinessGates {
			if gate.ConditionType != pub.InPlaceUpdateReady && gate.ConditionType != pub.KruisePodReady &&
				readiness.Condition(pod, gate.ConditionType) == nil {
				closed = append(closed, gate.ConditionType)
			}
		}
		if len(closed) > 0 {
			p.Change(key, func(o client.Object) {
				status := &o.(*corev1.Pod).Status
				for _, gate := range closed {
					status.Conditions = append(status.Conditions,
						corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue})
				}
			})
		}
	}
}

// answerHooks releases the pods that hooks hold, like the owner of the hook in a cluster, and reports whether
// there were any.
func (p *play) answerHooks() bool {
	names := map[string]bool{}
	if p.hooks == nil {
		return false
	}

	for _, object := range p.List("Pod", false) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			continue
		}
		name, hook, on := p.awaited(lifecycle.State(pod))
		if hook == nil || on == lifecycle.FullyHooked(hook, pod) || !on && !lifecycle.Hooked(hook, pod) {
			continue
		}
		names[name] = true
		p.Change(p.KeyOf("Pod", pod), func(o client.Object) { answer(o, hook, on) })
	}

	p.freed = append(p.freed, slices.Sorted(maps.Keys(names))...)
	return len(names) > 0
}

// awaited returns the hook that a pod in that state waits for. on is true if the pod waits for the hook's
// labels and finalizers to be present, and false if it waits for them to be removed.
func (p *play) awaited(state pub.LifecycleStateType) (name string, hook *pub.LifecycleHook, on bool) {
	switch state {
	case pub.LifecycleStatePreparingDelete:
		return "preDelete", p.hooks.PreDelete, false
	case pub.LifecycleStatePreparingUpdate:
		return "inPlaceUpdate", p.hooks.InPlaceUpdate, false
	case pub.LifecycleStateUpdated:
		return "inPlaceUpdate", p.hooks.InPlaceUpdate, true
	case pub.LifecycleStatePreparingNormal:
		return "preNormal", p.hooks.PreNormal, true
	}
	return "", nil, false
}

// answer adds the labels and finalizers of a hook to a pod, or removes them.
func answer(pod client.Object, hook *pub.LifecycleHook, on bool) {
	labels, finalizers := pod.GetLabels(), slices.Clone(pod.GetFinalizers())
	for key, value := range hook.LabelsHandler {
		if on {
			labels[key] = value
		} else {
			delete(labels, key)
		}
	}

	finalizers = slices.DeleteFunc(finalizers, func(f string) bool {
		return slices.Contains(hook.FinalizersHandler, f)
	})
	if on {
		finalizers = append(finalizers, hook.FinalizersHandler...)
	}
	pod.SetLabels(labels)
	pod.SetFinalizers(finalizers)
}

// hooksOf returns the lifecycle hooks of a workload, or nil if it has none.
func hooksOf(object client.Object) *pub.Lifecycle {
	var with struct {
		Spec struct {
			Lifecycle *pub.Lifecycle `json:"lifecycle"`
		} `json:"spec"`
	}
	if text, err := json.Marshal(object); err != nil || json.Unmarshal(text, &with) != nil {
		return nil
	}
	return with.Spec.Lifecycle
}

// Touched returns the pods that a forecast changes, by action.
func (f *Forecast) Touched() map[string][]string {
	touched := map[string][]string{}
	for _, wave := range f.Waves {
		for _, step := range wave.Steps {
			how := step.Action
			if step.Created {
				how = "create"
			}
			touched[how] = append(touched[how], strings.TrimPrefix(step.Namespace+"/"+step.Pod, "/"))
		}
	}
	return touched
}
