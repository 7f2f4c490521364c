package rollouts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespace is where all workloads are.
const Namespace = "robustness"

const group = "apps.kruise.io"

func resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1beta1", Resource: name}
}

var budgets = schema.GroupVersionResource{Group: "policy.kruise.io", Version: "v1beta1",
	Resource: "podunavailablebudgets"}

// workload is an object that is changed again and again.
type workload struct {
	resource schema.GroupVersionResource
	name     string
	// cluster is set if the object has no namespace.
	cluster bool
	// spec is the spec that it is made with, in YAML.
	spec string
	// changes are what users change, each a function that returns a merge patch.
	changes []func(*rand.Rand) string
	// besides is what users do now and then beside a change. If there is a pace, they do it after each rollout.
	besides func(context.Context, *Rollouts, workload, uint64) error
	// pace is how long users leave the workload alone after each rollout, and lull after one in three.
	pace, lull time.Duration
}

func image(draw *rand.Rand) string {
	return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:v%d"}]}}}}`,
		1+draw.IntN(9))
}

func replicas(least, most int) func(*rand.Rand) string {
	return func(draw *rand.Rand) string {
		return fmt.Sprintf(`{"spec":{"replicas":%d}}`, least+draw.IntN(most-least+1))
	}
}

func partition(most int) func(*rand.Rand) string {
	return func(draw *rand.Rand) string {
		return fmt.Sprintf(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":%d}}}}`,
			max(0, draw.IntN(2*most+1)-most))
	}
}

func unitedImage(draw *rand.Rand) string {
	return fmt.Sprintf(`{"spec":{"template":{"cloneSetTemplate":{"spec":{"template":{"spec":{"containers":[`+
		`{"name":"main","image":"app:v%d"}]}}}}}}}`, 1+draw.IntN(9))
}

func sidecarImage(draw *rand.Rand) string {
	return fmt.Sprintf(`{"spec":{"containers":[{"name":"shipper","image":"shipper:v%d"}]}}`, 1+draw.IntN(9))
}

func sidecarPartition(draw *rand.Rand) string {
	return fmt.Sprintf(`{"spec":{"updateStrategy":{"partition":%d}}}`, max(0, draw.IntN(4)-1))
}

type changes = []func(*rand.Rand) string

// inTurn makes the given changes one after the other.
func inTurn(all ...func(*rand.Rand) string) changes {
	next := -1
	return changes{func(draw *rand.Rand) string {
		next++
		return all[next%len(all)](draw)
	}}
}

func template(app, more string) string {
	return `
selector: {matchLabels: {app: ` + app + `}}
template:
  metadata: {labels: {app: ` + app + more + `}}
  spec:
    containers: [{name: main, image: "app:v1"}]
`
}

const claims = `
volumeClaimTemplates:
- metadata: {name: data}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

func withVolume(app string) string {
	return `
selector: {matchLabels: {app: ` + app + `}}
template:
  metadata: {labels: {app: ` + app + `}}
  spec:
    containers: [{name: main, image: "app:v1", volumeMounts: [{name: data, mountPath: /data}]}]
` + claims
}

func volumeImage(draw *rand.Rand) string {
	return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:v%d",`+
		`"volumeMounts":[{"name":"data","mountPath":"/data"}]}]}}}}`, 1+draw.IntN(9))
}

// workloads are all that is rolled out.
func workloads() []workload {
	return []workload{
		{resource: resource("clonesets"), name: "web", besides: specify,
			spec: template("web", "") + `
replicas: 6
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}
`, changes: changes{image, image, image, replicas(4, 7), partition(3)}},
		// What the order of deletion goes by stays long enough for every manager to know it, and it often gets smaller.
		{resource: resource("clonesets"), name: "calm", besides: price, pace: 50 * time.Second,
			spec: template("calm", "") + `
replicas: 6
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}
`, changes: inTurn(replicas(6, 7), replicas(2, 3), replicas(6, 7), image, replicas(2, 4))},
		{resource: resource("clonesets"), name: "surge",
			spec: template("surge", "") + `
replicas: 4
updateStrategy: {rollingUpdate: {podUpdatePolicy: ReCreate, maxUnavailable: 0, maxSurge: 1}}
`, changes: changes{image, image, replicas(3, 5)}},
		{resource: resource("clonesets"), name: "volumes",
			spec: withVolume("volumes") + `
replicas: 3
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`, changes: changes{volumeImage, volumeImage, replicas(2, 4)}},
		{resource: resource("statefulsets"), name: "ordered",
			spec: withVolume("ordered") + `
replicas: 3
serviceName: ordered
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`, changes: changes{volumeImage, volumeImage, replicas(1, 3), replicas(4, 5), partition(2)}},
		{resource: resource("statefulsets"), name: "parallel",
			spec: template("parallel", "") + `
replicas: 4
serviceName: parallel
podManagementPolicy: Parallel
updateStrategy: {rollingUpdate: {podUpdatePolicy: ReCreate, maxUnavailable: 2}}
`, changes: changes{image, image, replicas(3, 6), partition(2)}},
		{resource: resource("daemonsets"), name: "agent",
			spec: template("agent", "") + `
updateStrategy: {type: RollingUpdate, rollingUpdate: {rollingUpdateType: InPlaceIfPossible, maxUnavailable: 1}}
`, changes: changes{image}},
		// After a lull it is known which pods serve, and so where a second one may come.
		{resource: resource("daemonsets"), name: "surging", lull: 50 * time.Second,
			spec: template("surging", "") + `
updateStrategy: {type: RollingUpdate, rollingUpdate: {rollingUpdateType: Standard, maxUnavailable: 0, maxSurge: 1}}
`, changes: changes{image}},
		{resource: resource("sidecarsets"), name: "shipper", cluster: true,
			spec: `
selector: {matchLabels: {ship-logs: "yes"}}
namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + Namespace + `}}
containers: [{name: shipper, image: "shipper:v1"}]
updateStrategy: {maxUnavailable: 1}
`, changes: changes{sidecarImage, sidecarImage, sidecarImage, sidecarPartition}},
		{resource: resource("clonesets"), name: "logged",
			spec: template("logged", `, ship-logs: "yes"`) + `
replicas: 4
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`, changes: changes{image, replicas(3, 5)}},
		{resource: resource("uniteddeployments"), name: "united",
			spec: `
replicas: 4
selector: {matchLabels: {app: united}}
template:
  cloneSetTemplate:
    metadata: {labels: {app: united}}
    spec:
      selector: {matchLabels: {app: united}}
      updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
      template:
        metadata: {labels: {app: united}}
        spec:
          containers: [{name: main, image: "app:v1"}]
topology:
  subsets:
  - name: one
    nodeSelectorTerm: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [sim1]}]}
  - name: two
    nodeSelectorTerm: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [sim2]}]}
`, changes: changes{unitedImage, unitedImage, replicas(2, 6)}},
		{resource: resource("workloadspreads"), name: "spread",
			spec: `
targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: spread}
subsets:
- name: first
  maxReplicas: 3
  requiredNodeSelector: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [sim1]}]}
- name: second
  requiredNodeSelector: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [sim2]}]}
`},
		{resource: resource("clonesets"), name: "spread",
			spec: template("spread", "") + `
replicas: 5
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}
`, changes: changes{replicas(1, 2), replicas(3, 7), replicas(3, 7), image}},
		{resource: resource("clonesets"), name: "guarded",
			spec: template("guarded", "") + `
replicas: 5
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 3}}
`, changes: changes{image, image, replicas(4, 6)}},
		{resource: budgets, name: "guarded",
			spec: `
selector: {matchLabels: {app: guarded}}
maxUnavailable: 1
`},
		{resource: resource("persistentpodstates"), name: "parallel",
			spec: `
targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, name: parallel}
requiredPersistentTopology: {keys: [topology.kubernetes.io/zone]}
preferredPersistentTopology:
- weight: 50
  preference: {keys: [kubernetes.io/hostname]}
`},
		{resource: resource("resourcedistributions"), name: "shared", cluster: true, besides: spoil,
			spec: `
resource:
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: ` + shared + `}
  data: {version: "0"}
targets: {includedNamespaces: {list: [{name: robustness-one}, {name: robustness-two}, {name: ` + occupied + `}]}}
`, changes: changes{data, data, data, namespaces}},
		cron,
	}
}
