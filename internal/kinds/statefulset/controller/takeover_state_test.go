package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

// A pod of an older OpenKruise: no lifecycle state, and the record of an update of its environment that was
// complete long ago. Since then an operator has changed the label that the container read at its start, as
// operators of databases do. The pod serves and is left alone.
func TestAServingPodOfOpenKruiseWithoutStateIsLeftAlone(t *testing.T) {
	template := templated(`{"labels":{"app":"web","role":"replica"}}`, `{"containers":[{"name":"nginx","image":"nginx:1",
		"env":[{"name":"ROLE","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['role']"}}}]}]}`)
	s := simulate(1, makeSet(3, inParallel, inPlace, template), statefulset.Features{InPlace: inplace.Options{EnvFromMetadata: true}})
	s.Node.Daemon = true
	s.ActFor(time.Minute)
	uids := map[string]string{}
	for _, pod := range s.AllPods() {
		uids[pod.Name] = string(pod.UID)
		s.Change(podKey(pod.Name), func(o client.Object) {
			delete(o.GetLabels(), pub.LifecycleState)
			o.GetLabels()["role"] = "primary"
			o.GetAnnotations()[pub.InPlaceUpdateState] = `{"revision":"` + o.GetLabels()[pub.ControllerRevisionHash] +
				`","updateTimestamp":"` + s.Now().Add(-2*time.Hour).UTC().Format(time.RFC3339) +
				`","lastContainerStatuses":null,"updateEnvFromMetadata":true}`
		})
	}
	s.Start()
	s.Queue.Add()
	s.ActFor(30 * time.Minute)
	for name, uid := range uids {
		if pod := s.Pod(name); pod == nil || string(pod.UID) != uid {
			t.Errorf("pod %s was recreated; events %q", name, s.Recorded)
		}
	}
}
