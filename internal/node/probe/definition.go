package probe

import (
	"net"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
)

// Key names a probe on a node.
type Key struct {
	// Pod is the UID of the pod.
	Pod types.UID
	// Name is that of the probe, the PodProbeMarker's name included.
	Name string
}

// Definition is one probe of a NodePodProbe, with all numbers filled in.
type Definition struct {
	Key
	// Namespace and PodName are those of the pod, IP is its address, empty if it has none yet.
	Namespace, PodName, IP string
	// Container is the name of the container.
	Container string
	// Handler is what an attempt does.
	Handler appsv1alpha1.ContainerProbeHandler
	// InitialDelay is the time from the start of the container to the first attempt, Timeout that of one
	// attempt, and Period that between two.
	InitialDelay, Timeout, Period time.Duration
	// SuccessThreshold and FailureThreshold are how many attempts in a row make a result.
	SuccessThreshold, FailureThreshold int32
	// Refused is why the probe is not carried out; empty if it is.
	Refused string
}

// mostTimeout bounds an attempt: it holds one of the places of its namespace until it ends (PPM-100).
const mostTimeout = 5 * time.Minute

// Definitions returns the probes of a NodePodProbe in its order. Of two with one key the first counts.
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

// define fills in the defaults of PPM-012.
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

// refused says why a probe is not carried out. Admission refuses such probes; one may have been stored
// before, or written by hand (PPM-028). The daemon has the node's network: it connects to nothing but the
// address of the pod.
func refused(probe *appsv1alpha1.ContainerProbeSpec) string {
	why := podprobemarker.Fault(probe)
	switch {
	case why != "":
	case probe.HTTPGet != nil && portOf(probe.HTTPGet.Port) == 0, probe.TCPSocket != nil &&
		portOf(probe.TCPSocket.Port) == 0:
		why = "its port is not a number from 1 to 65535"
	default:
		return ""
	}
	return "the probe is not carried out: " + why
}

// portOf is the number of a port, also of one that is written as text; 0 if it is none.
func portOf(port intstr.IntOrString) int {
	n := port.IntValue()
	if n < 1 || n > 65535 {
		return 0
	}
	return n
}

// network tells whether an attempt goes to the address of the pod.
func (d *Definition) network() bool { return d.Handler.Exec == nil }

// liveness tells whether the probe is a liveness probe that the manager has taken over from kubelet
// (PPM-121).
func (d *Definition) liveness() bool { return podprobemarker.MarkerOf(d.Name) == "" }

// address is where attempts over the network go to.
func (d *Definition) address(port intstr.IntOrString) string {
	return net.JoinHostPort(d.IP, strconv.Itoa(portOf(port)))
}

// sameTarget tells whether two definitions of a probe ask the same question: results of one hold for the
// other.
func (d *Definition) sameTarget(other *Definition) bool {
	return d.Container == other.Container && d.Refused == other.Refused &&
		equality.Semantic.DeepEqual(d.Handler, other.Handler)
}
