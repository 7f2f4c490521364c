package cloneset

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestRefusedCreationIsNoLoop: pods that the server refuses have other names in each attempt. Neither the condition that tells of it nor
// claims that find no pod call for the next attempt at once, and what else is to be done goes on (CS-072, CS-225).
func TestRefusedCreationIsNoLoop(t *testing.T) {
	set := makeSet(3, claims("1Gi"), maxUnavailable(2))
	set.Spec.ScaleStrategy.EnablePVCReuse = false
	s := simulate(1, set, Features{})
	if err := s.settle(100); err != nil {
		t.Fatal(err)
	}
	s.Refused = func(w simulation.Write) bool { return w.Key.Kind == "Pod" && w.Verb == "create" }
	s.change(both(replicas(4), image("nginx:2")))
	writes, start := len(s.Writes), s.Now()
	for s.Now().Sub(start) < 10*time.Minute {
		if !s.round() {
			s.Pass(s.due.Sub(s.Now()))
		}
		if len(s.Writes)-writes > 200 {
			t.Fatalf("%d writes in %s: %v", len(s.Writes)-writes, s.Now().Sub(start), s.Writes[writes:])
		}
	}
	if status := s.set().Status; status.UpdatedReadyReplicas != 3 {
		t.Errorf("%d pods updated", status.UpdatedReadyReplicas)
	}
	s.Refused = nil
	if err := s.settle(100); err != nil {
		t.Fatal(err)
	}
	if status := s.set().Status; status.UpdatedAvailableReplicas != 4 || len(status.Conditions) > 0 {
		t.Errorf("%+v", status)
	}
}

// TestWebhookRewritesImages: a webhook gives pods, instead of the image that they shall have, the one that an older revision names. The
// rollout ends, and nobody fights (IPU-182, IPU-326).
func TestWebhookRewritesImages(t *testing.T) {
	for _, p := range []appsv1beta1.CloneSetPodUpdatePolicy{appsv1beta1.ReCreateCloneSetPodUpdatePolicy, appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy} {
		t.Run(string(p), func(t *testing.T) {
			s := simulate(1, makeSet(2, policy(p)), Features{})
			if err := s.settle(100); err != nil {
				t.Fatal(err)
			}
			s.pass.Applier.Cluster = rewriting{s.pass.Applier.Cluster}
			s.change(image("nginx:2"))
			if err := s.settle(300); err != nil {
				t.Fatal(err)
			}
			if status := s.set().Status; status.UpdatedAvailableReplicas != 2 || status.CurrentRevision != status.UpdateRevision {
				t.Errorf("%+v\n%s", status, s.describe())
			}
		})
	}
}

// rewriting is a webhook.
type rewriting struct{ Cluster }

func rewrite(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`"image":"nginx:2"`), []byte(`"image":"nginx:1"`))
}

func (c rewriting) CreatePod(ctx context.Context, pod map[string]any) (*corev1.Pod, error) {
	body, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	var rewritten map[string]any
	if err := json.Unmarshal(rewrite(body), &rewritten); err != nil {
		return nil, err
	}
	return c.Cluster.CreatePod(ctx, rewritten)
}

func (c rewriting) PatchPod(ctx context.Context, pod *corev1.Pod, body []byte, subresource string) (*corev1.Pod, error) {
	return c.Cluster.PatchPod(ctx, pod, rewrite(body), subresource)
}

// TestPodsThatServeAreLeftAlone: the record of an update that the reference completed reads as incomplete, because the daemon that told
// of it is gone. The pod serves, so it is neither replaced nor held, nor does its next update wait for it (IPU-312, IPU-325).
func TestPodsThatServeAreLeftAlone(t *testing.T) {
	s := simulate(1, makeSet(1, app("nginx:1", "a", "", "")), Features{InPlace: inplace.Options{EnvFromMetadata: true}})
	if err := s.settle(100); err != nil {
		t.Fatal(err)
	}
	name := s.active()[0].Name
	s.Change(podKey(name), func(o client.Object) {
		delete(o.GetAnnotations(), pub.RuntimeContainersMeta)
		o.GetAnnotations()[pub.InPlaceUpdateState] = `{"revision":"` + o.GetLabels()[pub.ControllerRevisionHash] +
			`","updateTimestamp":"2030-01-01T01:00:00Z","lastContainerStatuses":null,"updateEnvFromMetadata":true}`
	})
	s.startManager(s.pass.Features)
	s.Pass(2 * time.Hour)
	writes := len(s.Writes)
	p := s.active()[0]
	st, err2 := inplace.Progress(p, s.Now())
	t.Logf("%v %+v %v %+v", p.Annotations, st, err2, p.Spec.Containers[0].Env)
	s.trace = true
	if err := s.settle(100); err != nil || len(s.Writes) > writes {
		t.Fatalf("%v %v\n%s", err, s.Writes[writes:], s.describe())
	}
	s.change(app("nginx:2", "a", "", ""))
	if err := s.settle(100); err != nil {
		t.Fatal(err)
	}
	if status := s.set().Status; s.active()[0].Name != name || status.UpdatedAvailableReplicas != 1 {
		t.Errorf("%+v\n%s", status, s.describe())
	}
}
