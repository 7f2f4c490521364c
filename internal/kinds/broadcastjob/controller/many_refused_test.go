package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/simulation"
)

// BJ-073: a policy refuses the pods of the thirty nodes of a pool for good. The other nodes get theirs nevertheless,
// although it takes half an hour until all thirty were tried, a minute apart.
func TestManyRefusedNodesHoldUpNoOther(t *testing.T) {
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("a%02d", i))
	}
	s := simulate(1, makeJob(), append(names, "n1", "n2")...)
	open := map[string]bool{}
	for _, node := range []string{"n1", "n2"} {
		open[podName(s, node)] = true
	}
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == "Pod" && !open[r.Key.Name] {
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
		}
		return nil
	}
	s.RunFor(40 * time.Minute)
	if n := len(s.AllPods()); n != 2 {
		t.Errorf("after forty minutes %d of 2 other nodes have a pod", n)
	}
}

func podName(s *simulated, node string) string {
	return nodes.PodName(jobKey.Name, string(s.Object().UID), node, 0)
}
