//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRolloutThatStandsStill: with defaults, a rollout to an image that does not exist is reported by an
// event of the CloneSet, with the pod and its reason (OPS-099 (part)).
func TestRolloutThatStandsStill(t *testing.T) {
	t.Parallel()
	const template = `
replicas: 2
template:
  spec:
    containers:
    - {name: nginx, image: "%s", imagePullPolicy: IfNotPresent}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`
	w := create(t, "still", fmt.Sprintf(template, "nginx:1.26"))
	w.change("spec:\n" + indent(fmt.Sprintf(template, "nginx:does-not-exist")))
	eventually(t, "the event RolloutWaiting", func(ctx context.Context) string {
		var events corev1.EventList
		if err := kube.List(ctx, &events, client.InNamespace(w.key.Namespace)); err != nil {
			return err.Error()
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == w.key.Name && e.Reason == "RolloutWaiting" && strings.Contains(e.Message, "ImagePull") &&
				strings.Contains(e.Message, "pod "+w.key.Name+"-") {
				return ""
			}
		}
		return fmt.Sprintf("not among %d events", len(events.Items))
	})
}
