package podprobemarker

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
)

// Limits of one PodProbeMarker (PPM-033). For each pod that it selects, all its probes are listed in the
// NodePodProbe of the pod's node.
const (
	// MostProbes is the maximum number of probes.
	MostProbes = 32
	// MostBytes is the maximum size of all its probes together, as JSON.
	MostBytes = 32 << 10
	// mostName is the maximum length of a probe's name, which becomes part of a name in the NodePodProbe.
	mostName = 253
)

// Default sets the scheme of HTTP requests, which manifests often omit (PPM-013). Nothing else is defaulted
// in the object (PPM-012).
func Default(marker map[string]any) (patch []jsonpatch.Operation) {
	spec, _ := marker["spec"].(map[string]any)
	probes, _ := spec["probes"].([]any)
	for i, item := range probes {
		entry, _ := item.(map[string]any)
		probe, _ := entry["probe"].(map[string]any)
		get, ok := probe["httpGet"].(map[string]any)
		if scheme := get["scheme"]; ok && (scheme == nil || scheme == "") {
			patch = append(patch, jsonpatch.NewOperation("add",
				fmt.Sprintf("/spec/probes/%d/probe/httpGet/scheme", i), string(corev1.URISchemeHTTP)))
		}
	}

	return patch
}

// reserved lists conditions of pods that Kubernetes or other controllers of this project write and act on.
// The caches do not keep them for probes.
var reserved = []string{
	string(corev1.PodScheduled), string(corev1.PodInitialized), string(corev1.PodReady),
	string(corev1.ContainersReady), string(corev1.PodReadyToStartContainers), string(corev1.DisruptionTarget),
	string(corev1.PodResizePending), string(corev1.PodResizeInProgress),
	string(corev1.AllContainersRestarting), string(pub.KruisePodReady), string(pub.InPlaceUpdateReady),
	string(pub.SidecarTerminated),
}

// Validate validates a PodProbeMarker (PPM-021 to PPM-031, PPM-033); old is nil on creation.
func Validate(marker, old *appsv1alpha1.PodProbeMarker) (errs field.ErrorList) {
	path := field.NewPath("spec")
	spec := &marker.Spec
	switch at := path.Child("selector"); {
	case old != nil && !equality.Semantic.DeepEqual(spec.Selector, old.Spec.Selector):
		errs = append(errs, field.Forbidden(at, "selector must be immutable: create another PodProbeMarker"))
	case old == nil:
		errs = append(errs, fieldcheck.RequiredSelector(spec.Selector, at)...)
	}

	at := path.Child("probes")
	switch n := len(spec.Probes); {
	case n == 0:
		return append(errs, field.Required(at, "name at least one probe"))
	case n > MostProbes:
		return append(errs, field.TooMany(at, n, MostProbes))
	}

	if text, err := json.Marshal(spec.Probes); err != nil || len(text) > MostBytes {
		return append(errs, field.TooLong(at, "", MostBytes))
	}

	names, conditions, keys := map[string]bool{}, map[string]bool{}, map[string]string{}
	for i := range spec.Probes {
		errs = append(errs, checkProbe(&spec.Probes[i], at.Index(i), names, conditions, keys)...)
	}

	return errs
}

// checkProbe validates one probe. names and conditions hold those of the probes before it; keys records which
// probe writes a key for a state.
func checkProbe(
	probe *appsv1alpha1.PodContainerProbe, path *field.Path, names, conditions map[string]bool,
	keys map[string]string,
) (errs field.ErrorList) {
	switch at := path.Child("name"); {
	case probe.Name == "":
		errs = append(errs, field.Required(at, ""))
	case strings.Contains(probe.Name, "#"):
		errs = append(errs, field.Invalid(at, probe.Name, "must not contain #"))
	case len(probe.Name) > mostName:
		errs = append(errs, field.TooLong(at, "", mostName))
	case slices.Contains(reserved, probe.Name):
		errs = append(errs, field.Invalid(at, probe.Name, "is a condition of every pod"))
	case names[probe.Name]:
		errs = append(errs, field.Duplicate(at, probe.Name))
	}

	names[probe.Name] = true
	switch at, condition := path.Child("podConditionType"), probe.PodConditionType; {
	case condition == "" && len(probe.MarkerPolicy) == 0:
		errs = append(errs, field.Required(at, "podConditionType or markerPolicy must be there"))
	case condition == "":
	case slices.Contains(reserved, condition):
		errs = append(errs, field.Invalid(at, condition, "is a condition of every pod, which others write"))
	case conditions[condition]:
		errs = append(errs, field.Duplicate(at, condition))
	default:
		for _, fault := range validation.IsQualifiedName(condition) {
			errs = append(errs, field.Invalid(at, condition, fault))
		}
	}

	conditions[probe.PodConditionType] = true
	if probe.ContainerName == "" {
		errs = append(errs, field.Required(path.Child("containerName"), ""))
	}

	errs = append(errs, checkHandler(&probe.Probe, path.Child("probe"))...)
	return append(errs, checkPolicies(probe, path.Child("markerPolicy"), keys)...)
}

// checkHandler validates the handler of a probe and its timing.
func checkHandler(probe *appsv1alpha1.ContainerProbeSpec, path *field.Path) (errs field.ErrorList) {
	handlers := 0
	if exec := probe.Exec; exec != nil {
		handlers++
		if len(exec.Command) == 0 {
			errs = append(errs, field.Required(path.Child("exec", "command"), ""))
		}
	}

	const noHost = "host field in probes is not allowed"
	if get := probe.HTTPGet; get != nil {
		handlers++
		at := path.Child("httpGet")
		if get.Host != "" {
			errs = append(errs, field.Forbidden(at.Child("host"), noHost))
		}
		if get.Path == "" {
			errs = append(errs, field.Required(at.Child("path"), ""))
		} else if _, err := url.Parse(get.Path); err != nil {
			errs = append(errs, field.Invalid(at.Child("path"), get.Path, "is no path of a URL"))
		}
		if get.Scheme != corev1.URISchemeHTTP && get.Scheme != corev1.URISchemeHTTPS {
			errs = append(errs, field.NotSupported(at.Child("scheme"), get.Scheme,
				[]corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}))
		}
		errs = append(errs, checkPort(get.Port, at.Child("port"))...)
		for i := range get.HTTPHeaders {
			for _, fault := range validation.IsHTTPHeaderName(get.HTTPHeaders[i].Name) {
				errs = append(errs, field.Invalid(at.Child("httpHeaders").Index(i).Child("name"),
					get.HTTPHeaders[i].Name, fault))
			}
		}
	}

	if socket := probe.TCPSocket; socket != nil {
		handlers++
		at := path.Child("tcpSocket")
		if socket.Host != "" {
			errs = append(errs, field.Forbidden(at.Child("host"), noHost))
		}
		errs = append(errs, checkPort(socket.Port, at.Child("port"))...)
	}

	switch {
	case handlers == 0:
		errs = append(errs, field.Required(path, "must specify a handler type: exec, httpGet or tcpSocket"))
	case handlers > 1:
		errs = append(errs, field.Forbidden(path, "may not specify more than 1 handler type"))
	}

	for _, number := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", probe.InitialDelaySeconds},
		{"timeoutSeconds", probe.TimeoutSeconds},
		{"periodSeconds", probe.PeriodSeconds},
		{"successThreshold", probe.SuccessThreshold},
		{"failureThreshold", probe.FailureThreshold},
	} {
		if number.value < 0 {
			errs = append(errs,
				field.Invalid(path.Child(number.name), number.value, "must be greater than or equal to 0"))
		}
	}
	return errs
}

func checkPort(port intstr.IntOrString, path *field.Path) (errs field.ErrorList) {
	number, named := numberOf(port)
	faults := validation.IsValidPortNum(number)
	if named {
		faults = validation.IsValidPortName(port.StrVal)
	}
	for _, fault := range faults {
		errs = append(errs, field.Invalid(path, port.String(), fault))
	}
	return errs
}

// numberOf returns the number of a port, which may be written as a string; named reports whether the port is
// a name instead.
func numberOf(port intstr.IntOrString) (number int, named bool) {
	if port.Type == intstr.Int {
		return port.IntValue(), false
	}
	number, err := strconv.Atoi(port.StrVal)
	return number, err != nil
}

// checkPolicies validates the labels and annotations that a probe sets on pods.
func checkPolicies(
	probe *appsv1alpha1.PodContainerProbe, path *field.Path, keys map[string]string,
) (errs field.ErrorList) {
	states := map[appsv1alpha1.ProbeState]bool{}
	for i := range probe.MarkerPolicy {
		policy, at := &probe.MarkerPolicy[i], path.Index(i)
		switch state := policy.State; {
		case state != appsv1alpha1.ProbeSucceeded && state != appsv1alpha1.ProbeFailed:
			errs = append(errs, field.NotSupported(at.Child("state"), state,
				[]appsv1alpha1.ProbeState{appsv1alpha1.ProbeSucceeded, appsv1alpha1.ProbeFailed}))
		case states[state]:
			errs = append(errs, field.Duplicate(at.Child("state"), state))
		}

		states[policy.State] = true
		if len(policy.Labels)+len(policy.Annotations) == 0 {
			errs = append(errs, field.Required(at, "labels or annotations must be there"))
		}

		errs = append(errs, metav1validation.ValidateLabels(policy.Labels, at.Child("labels"))...)
		errs = append(errs, apivalidation.ValidateAnnotations(policy.Annotations, at.Child("annotations"))...)
		for _, kind := range []string{"labels", "annotations"} {
			pairs := policy.Labels
			if kind == "annotations" {
				pairs = policy.Annotations
			}
			for _, key := range slices.Sorted(maps.Keys(pairs)) {
				written := string(policy.State) + " " + kind + " " + key
				if by, ok := keys[written]; ok && by != probe.Name {
					errs = append(errs, field.Invalid(at.Child(kind).Key(key), by,
						"another probe writes it for the same state"))
				}
				keys[written] = probe.Name
			}
		}
	}

	return errs
}
