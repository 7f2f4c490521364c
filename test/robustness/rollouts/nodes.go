package rollouts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Versions is how many versions there are of the images app, shipper and pull for real nodes: v1, v2 and so on. A kubelet puts off the
// restart of a container with an image that the container had not long ago, so that there are many.
const Versions = 30

// containers are those of pods on real nodes. No fault and no rollout but a request or a crash restarts the one beside.
func containers(version int, more string) string {
	return fmt.Sprintf(`[{"name":"main","image":"app:v%d"%s},{"name":"beside","image":"beside:v1"}]`, version, more)
}

func realTemplate(app, labels, more string) string {
	return `
selector: {matchLabels: {app: ` + app + `}}
template:
  metadata: {labels: {app: ` + app + labels + `}}
  spec:
    terminationGracePeriodSeconds: 2
    containers: ` + containers(1, more) + "\n"
}

func realImage(more string) func(*rand.Rand) string {
	return func(draw *rand.Rand) string {
		return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":%s}}}}`, containers(1+draw.IntN(Versions), more))
	}
}

func realSidecar(draw *rand.Rand) string {
	return fmt.Sprintf(`{"spec":{"containers":[{"name":"shipper","image":"shipper:v%d"}]}}`, 1+draw.IntN(Versions))
}

// realWorkloads are all that is rolled out on real nodes.
func realWorkloads() []workload {
	const mounts = `,"volumeMounts":[{"name":"data","mountPath":"/data"}]`
	image, volumeImage := realImage(""), realImage(mounts)
	return []workload{
		{resource: resource("clonesets"), name: "web", besides: specify,
			spec: realTemplate("web", "", "") + `
replicas: 3
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`, changes: changes{image, image, image, replicas(2, 4), partition(2)}},
		{resource: resource("clonesets"), name: "surge",
			spec: realTemplate("surge", "", "") + `
replicas: 2
updateStrategy: {rollingUpdate: {podUpdatePolicy: ReCreate, maxUnavailable: 0, maxSurge: 1}}
`, changes: changes{image}},
		{resource: resource("statefulsets"), name: "ordered",
			spec: realTemplate("ordered", "", mounts) + claims + `
replicas: 2
serviceName: ordered
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`, changes: changes{volumeImage, volumeImage, replicas(1, 3), partition(1)}},
		{resource: resource("daemonsets"), name: "agent",
			spec: realTemplate("agent", "", "") + `
updateStrategy: {type: RollingUpdate, rollingUpdate: {rollingUpdateType: InPlaceIfPossible, maxUnavailable: 1}}
`, changes: changes{image}},
		{resource: resource("sidecarsets"), name: "shipper", cluster: true,
			spec: `
selector: {matchLabels: {ship-logs: "yes"}}
namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + Namespace + `}}
containers: [{name: shipper, image: "shipper:v1"}]
updateStrategy: {maxUnavailable: 1}
`, changes: changes{realSidecar, realSidecar, sidecarPartition}},
		{resource: resource("clonesets"), name: "logged",
			spec: realTemplate("logged", `, ship-logs: "yes"`, "") + `
replicas: 2
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`, changes: changes{image, replicas(2, 3)}},
		{resource: resource("clonesets"), name: "guarded",
			spec: realTemplate("guarded", "", "") + `
replicas: 3
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}
`, changes: changes{image, image, replicas(2, 4)}},
		{resource: budgets, name: "guarded",
			spec: `
selector: {matchLabels: {app: guarded}}
maxUnavailable: 1
`},
	}
}

// realBroadcastJob and realEphemeralJob are like those on simulated nodes, with containers that end.
func realBroadcastJob(number int) workload {
	return workload{resource: resource("broadcastjobs"), name: fmt.Sprintf("job-%d", number), pace: 10 * time.Second, spec: `
parallelism: 1
template:
  metadata: {labels: {job: "yes"}}
  spec:
    restartPolicy: Never
    terminationGracePeriodSeconds: 2
    containers: [{name: main, image: "nginx:1.26", command: [sleep, "1"]}]
completionPolicy: {type: Always}
`}
}

func realEphemeralJob(number int) workload {
	w := ephemeralJob(number)
	w.pace = 10 * time.Second
	w.spec = fmt.Sprintf(`
selector: {matchLabels: {app: logged}}
parallelism: 1
template:
  ephemeralContainers: [{name: look-%d, image: "nginx:1.26", command: [sleep, "1"]}]
`, number)
	return w
}

// pullJob is one of the ImagePullJobs. Each has an image of its own, since the tags of nodes belong to all jobs of an image; each
// fourth one has an image that is not there. Without a deadline the tags stay for longer than it takes to look at them.
func pullJob(number int) workload {
	image, policy := fmt.Sprintf("pull:v%d", 1+number%Versions), "IfNotPresent"
	if number%4 == 0 {
		image = fmt.Sprintf("pull:missing-%d", number)
	}
	if number%2 == 0 {
		policy = "Always"
	}
	return workload{resource: resource("imagepulljobs"), name: fmt.Sprintf("pull-%d", number), pace: 5 * time.Second, spec: fmt.Sprintf(`
image: %q
parallelism: %d
imagePullPolicy: %s
pullPolicy: {backoffLimit: 3, timeoutSeconds: 600}
completionPolicy: {type: Always}
`, image, 1+number%3, policy)}
}

// restart is one of the ContainerRecreateRequests, but for the pod.
func restart(number int, draw *rand.Rand) workload {
	named := []string{"[{name: main}]", "[{name: beside}]", "[{name: beside}, {name: main}]"}[draw.IntN(3)]
	grace := []string{"", "unreadyGracePeriodSeconds: 0, ", "unreadyGracePeriodSeconds: 3, "}[draw.IntN(3)]
	deadline := []string{"", "activeDeadlineSeconds: 20", "activeDeadlineSeconds: 90"}[draw.IntN(3)]
	return workload{resource: resource("containerrecreaterequests"), name: fmt.Sprintf("restart-%d", number), pace: 2 * time.Second,
		spec: fmt.Sprintf(`
containers: %s
strategy: {%sminStartedSeconds: %d, forceRecreate: %t, orderedRecreate: %t, failurePolicy: %s}
%s
`, named, grace, 3*draw.IntN(2), draw.IntN(2) == 0, draw.IntN(2) == 0, []string{"Fail", "Ignore"}[draw.IntN(2)], deadline)}
}

// playRestarts asks for restarts of containers, one after the other, in pods that are rolled out meanwhile.
func (r *Rollouts) playRestarts(ctx context.Context) {
	draw := rand.New(rand.NewPCG(r.seed, 0xc1)) //nolint:gosec // chance that can be repeated
	for number := 1; ctx.Err() == nil; number++ {
		w, choice := restart(number, draw), draw.Uint64()
		spec := w.spec
		err := r.again(ctx, "making "+w.name, func(ctx context.Context) error {
			// A pod that is about to go is refused, and another one is chosen.
			pod, err := r.pick(ctx, "app in (web,ordered,agent,logged,guarded)", choice)
			choice++
			if err != nil {
				return err
			}
			if pod == nil {
				return errors.New("there is no pod")
			}
			w.spec = "podName: " + pod.Name + spec
			return r.make(ctx, w)
		})
		if err != nil {
			return
		}
		r.settled(ctx, w, 2*Patience, false, jobOver)
		if number > keptJobs && r.remove(ctx, restart(number-keptJobs, rand.New(rand.NewPCG(0, 0)))) != nil { //nolint:gosec // its name matters alone
			return
		}
		waitFor(ctx, w.pace)
	}
}

// Crash ends the main process of a container of any workload, and returns which.
func (r *Rollouts) Crash(ctx context.Context, choice uint64) (string, error) {
	pod, err := r.pick(ctx, "app", choice)
	if err != nil || pod == nil {
		return "pods", err
	}
	var running []corev1.ContainerStatus
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running != nil {
			running = append(running, status)
		}
	}
	if len(running) == 0 {
		return pod.Namespace + "/" + pod.Name, nil // it is down already
	}
	of := running[(choice>>32)%uint64(len(running))]
	return pod.Namespace + "/" + pod.Name + "/" + of.Name, r.cluster.Crash(of.ContainerID)
}

// completed reports whether an ImagePullJob has ended. It has no phase.
func completed(object *unstructured.Unstructured) bool {
	at, _, _ := unstructured.NestedString(object.Object, "status", "completionTime")
	return object.GetKind() == "ImagePullJob" && at != ""
}
