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
	"github.com/afloat-project/afloat/internal/simulation"
)

// Step is what is done with one pod, in the words of the verdict.
type Step struct {
	Verdict
	// Created: the pod is new.
	Created bool
}

// Wave is what is done before the next pods have to become ready.
type Wave struct {
	// After is the time since the beginning at which it comes at the earliest.
	After time.Duration
	// Hooks are the lifecycle hooks that had to let pods go before.
	Hooks []string
	Steps []Step
}

// Forecast is what becomes of an object.
type Forecast struct {
	Waves []Wave
	// Last is what the last pass decided: who is left, and why.
	Last *Pass
	// Took is how long it takes at least: minReadySeconds, grace periods and the like.
	Took time.Duration
	// Cut says why the forecast ends before the rollout does, empty if nothing would happen any more.
	Cut string
	// Events are the warnings that would be told, by reason: the last message of each.
	Events map[string]string
}

// mostRounds and longest bound a forecast.
const (
	mostRounds = 100_000
	mostStill  = 20
	longest    = 30 * 24 * time.Hour
)

// play is a forecast that is being made.
type play struct {
	*Stage
	Forecast
	begun time.Time
	key   simulation.Key
	hooks *pub.Lifecycle
	open  bool // the last wave takes more steps
	freed []string
	// still is how often time alone has passed since anything moved.
	still int
	// stirred are the pods that changed since kubelets had nothing to do with them; gone: an object went
	// since garbage was collected.
	stirred map[string]bool
	gone    bool
	// count is when budgets are to be counted again although nothing happens; zero for never.
	count time.Time
	// counted is how much the manager had written when budgets were counted last.
	counted int
}

// Play lets passes over an object alternate with kubelets, until nothing more would happen.
func (s *Stage) Play(ctx context.Context, player Player, key simulation.Key) (*Forecast, error) {
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
		// what was booked ends with time, also if no kubelet moves
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

// recount counts the budgets anew.
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

// moves lets go on what waits for time or for hooks, and tells whether anything did. after is when the next
// pass is due.
func (p *play) moves(ctx context.Context, after time.Duration) (bool, error) {
	if p.answerHooks() {
		return true, nil
	}

	counts := false
	if left := p.count.Sub(p.Now()); !p.count.IsZero() && (after <= 0 || left <= after) {
		after, counts = left, true
	}

	switch {
	case after <= 0 && !counts, p.count.IsZero() && p.still > mostStill+2*len(p.Last.Verdicts): // bookings of budgets end with time
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

// note adds what a pass did to the wave that is open, and tells whether it did anything.
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

// thaw lets kubelets take up a pod that was not ready, once somebody has changed what it runs, or deletes it.
func (p *play) thaw(w simulation.Write) {
	if w.Key.Kind != "Pod" || !p.Kubelet.Frozen[w.Key.Name] {
		return
	}
	pod, _ := p.Get(w.Key).(*corev1.Pod)
	if w.Verb == "delete" || pod == nil || pod.Generation != p.untouched[w.Key.Name] {
		delete(p.Kubelet.Frozen, w.Key.Name)
	}
}

// happened notes that a pod has to be looked at by its kubelet.
func (p *play) happened(key simulation.Key, gone bool) {
	p.gone = p.gone || gone
	if key.Kind == "Pod" && !gone {
		p.stirred[key.Name] = true
	}
}

// kubelets act on all pods that changed until none moves any more, and tells whether any did.
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

// gates opens the readiness gates of new pods that others open in a cluster.
func (p *play) gates(names []string) {
	for _, name := range names {
		key := simulation.Key{Kind: "Pod", Name: name}
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

// answerHooks lets go the pods that hooks hold, as whoever hooked them does in a cluster, and tells whether
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

// awaited is the hook that a pod in that state waits for, and whether it waits for what the hook names to be
// there, or not to be there.
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

// answer puts what a hook names on a pod, or takes it off.
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

// hooksOf are the lifecycle hooks of a workload, nil if it has none.
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

// Touched are the pods that a forecast does something with, by how.
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
