package dashboard

import (
	"testing"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

func TestRowOf(t *testing.T) {
	for name, test := range map[string]struct {
		document string
		want     state
		updated  int
		target   int
	}{
		"a CloneSet that is done": {`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, generation: 2}, spec: {replicas: 3},
			status: {observedGeneration: 2, replicas: 3, readyReplicas: 3, updatedReplicas: 3, updatedReadyReplicas: 3, updatedAvailableReplicas: 3}}`,
			stateDone, 3, 3},
		"one that rolls out": {`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, generation: 2}, spec: {replicas: 3},
			status: {observedGeneration: 2, replicas: 3, readyReplicas: 3, updatedReplicas: 1, updatedReadyReplicas: 1}}`,
			stateRolling, 1, 3},
		"one whose partition is reached, with a pod that is not ready": {`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, generation: 2},
			spec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: 2}}},
			status: {observedGeneration: 2, replicas: 3, readyReplicas: 2, updatedReplicas: 1, updatedReadyReplicas: 1, updatedAvailableReplicas: 1}}`,
			stateRolling, 1, 1},
		"one that is paused": {`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, generation: 2},
			spec: {replicas: 3, updateStrategy: {rollingUpdate: {paused: true}}}, status: {observedGeneration: 2, updatedReplicas: 1}}`,
			statePaused, 1, 3},
		"one that failed": {`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, generation: 2}, spec: {replicas: 3},
			status: {observedGeneration: 2, updatedReplicas: 1, conditions: [{type: FailedUpdate, status: 'True', message: no}]}}`,
			stateFailed, 1, 3},
		"one that is being deleted": {`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, deletionTimestamp: '2026-01-01T00:00:00Z'}, spec: {replicas: 3}}`,
			stateDeleting, 0, 3},
		"a SidecarSet": {`{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: log}, status: {matchedPods: 4, updatedPods: 2, readyPods: 4}}`,
			stateRolling, 2, 4},
		"a SidecarSet that is done": {`{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: log}, status: {matchedPods: 4, updatedPods: 4, readyPods: 4}}`,
			stateDone, 4, 4},
		"a SidecarSet whose partition is reached": {`{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: log},
			spec: {updateStrategy: {partition: 50%}}, status: {matchedPods: 4, updatedPods: 2, readyPods: 4}}`,
			stateDone, 2, 2},
		"a SidecarSet that updates no pods": {`{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: log},
			spec: {updateStrategy: {type: NotUpdate}}, status: {matchedPods: 4, updatedPods: 1, readyPods: 4}}`,
			stateDone, 1, 1},
		"a SidecarSet that was just changed": {`{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: log, generation: 2},
			status: {observedGeneration: 1, matchedPods: 4, updatedPods: 4, readyPods: 4}}`,
			stateRolling, 4, 4},
		"a BroadcastJob that runs": {`{apiVersion: apps.kruise.io/v1beta1, kind: BroadcastJob, metadata: {name: job}, status: {desired: 4, succeeded: 1, phase: running}}`,
			stateRolling, 1, 4},
		"a BroadcastJob that failed": {`{apiVersion: apps.kruise.io/v1beta1, kind: BroadcastJob, metadata: {name: job}, status: {desired: 4, succeeded: 1, phase: failed}}`,
			stateFailed, 1, 4},
		"a DaemonSet": {`{apiVersion: apps.kruise.io/v1beta1, kind: DaemonSet, metadata: {name: agent, generation: 1},
			status: {observedGeneration: 1, desiredNumberScheduled: 5, updatedNumberScheduled: 2, numberReady: 5, numberAvailable: 5}}`,
			stateRolling, 2, 5},
		"a document without fields": {`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web}}`, stateRolling, 0, 1},
		"fields of other types":     {`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web}, spec: {replicas: many, template: 3}, status: {conditions: {a: b}}}`, stateDone, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := rowOf("x", plugintest.Object(t, test.document))
			updated, target := 0, 0
			if got.Updated != nil {
				updated = *got.Updated
			}
			if got.Target != nil {
				target = *got.Target
			}
			if got.State != test.want || updated != test.updated || target != test.target || got.Line == "" {
				t.Errorf("got %s, %d of %d, %q", got.State, updated, target, got.Line)
			}
		})
	}
}
