package probe

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
)

// Key identifies a probe on a node.
type Key struct {
	// Pod is the UID of the pod.
	Pod types.UID
	// Name is the name of the probe, including the name of the PodProbeMarker.
	Name string
}

// Definition is one probe of a NodePodProbe with all defaults set.
type Definition struct {
	Key
	// Namespace and PodName identify the pod. IP is its address, or empty if it has none yet.
	Namespace, PodName, IP string
	// Container is the name of the container.
	Container string
	// Handler defines what an attempt does.
	Handler appsv1alpha1.ContainerProbeHandler
	// InitialDelay is the time from the start of the container to the first attempt, Timeout the timeout of
	// an attempt, and Period the time between two attempts.
	InitialDelay, Timeout, Period time.Duration
	// SuccessThreshold and FailureThreshold are the numbers of consecutive attempts that determine a result.
	SuccessThreshold, FailureThreshold int32
	// Refused is the reason why the probe is not carried out. It is empty if the probe is carried out.
	Refused string
}

// mostTimeout limits the duration of an attempt, because it occupies one of the places of its namespace.
const mostTimeout = 5 * time.Minute

// Definitions returns the probes of a NodePodProbe in its order. If two have the same key, the first one
// counts.
func Definitions(object *appsv1alpha1.NodePodProbe) []Definition {
	var all []Definition
	seen := map[Key]bool{}
	for i := range object.Spec.PodProbes {
		pod := &object.Spec.PodProbes[i]
		for j := range pod.Probes {
			d := define(pod, &pod.Probes[j])
			if !seen[d.Key] {
				seen[d.Key] = true
				all = append(all, d)
			}
		}
	}

	return all
}

// define converts a probe and sets its defaults.
func define(pod *appsv1alpha1.PodProbe, probe *appsv1alpha1.ContainerProbe) Definition {
	seconds := func(n int32) time.Duration { return time.Duration(n) * time.Second }
	numbers := podprobemarker.Effective(probe.Probe)
	return Definition{
		Key:              Key{types.UID(pod.UID), probe.Name},
		Namespace:        pod.Namespace,
		PodName:          pod.Name,
		IP:               pod.IP,
		Container:        probe.ContainerName,
		Handler:          numbers.ContainerProbeHandler,
		InitialDelay:     seconds(numbers.InitialDelaySeconds),
		Timeout:          min(seconds(numbers.TimeoutSeconds), mostTimeout),
		Period:           seconds(numbers.PeriodSeconds),
		SuccessThreshold: numbers.SuccessThreshold,
		FailureThreshold: numbers.FailureThreshold,
		Refused:          refused(&probe.Probe),
	}
}

// refused returns why a probe is not carried out. Admission rejects such probes, but one may have been stored
// before or written by other means. The daemon uses the network of the node, so it must connect only to the
// address of the pod.
func refused(probe *appsv1alpha1.ContainerProbeSpec) string {
	why := podprobemarker.Fault(probe)
	switch {
	case why != "":
	case probe.HTTPGet != nil && portOf(probe.HTTPGet.Port) == 0,
		probe.TCPSocket != nil && portOf(probe.TCPSocket.Port) == 0:
		why = "its port is not a number from 1 to 65535"
	default:
		return ""
	}
	return "the probe is not carried out: " + why
}

// portOf returns the number of a port, even if it is written as a string. It returns 0 if the port is
// invalid.
func portOf(port intstr.IntOrString) int {
	n := port.IntValue()
	if n < 1 || n > 65535 {
		return 0
	}
	return n
}

// network reports whether an attempt connects to the address of the pod.
func (d *Definition) network() bool { return d.Handler.Exec == nil }

// liveness reports whether the probe is a liveness probe that the manager has taken over from kubelet.
func (d *Definition) liveness() bool { return podprobemarker.MarkerOf(d.Name) == "" }

// address returns the address that attempts over the network connect to.
func (d *Definition) address(port intstr.IntOrString) string {
	return net.JoinHostPort(d.IP, strconv.Itoa(portOf(port)))
}

// sameTarget reports whether two definitions of a probe check the same thing, so that results of one are
// valid for the other.
func (d *Definition) sameTarget(other *Definition) bool {
	return d.Container == other.Container && d.Refused == other.Refused &&
		equality.Semantic.DeepEqual(d.Handler, other.Handler)
}

// targetHash returns a hash of what sameTarget compares, by which a later process knows what a result is about.
func (d *Definition) targetHash() string {
	text, _ := json.Marshal([]any{d.Container, d.Refused, d.Handler}) // plain data
	sum := fnv.New32a()
	_, _ = sum.Write(text)
	return fmt.Sprintf("%08x", sum.Sum32())
}
