package sidecarset

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// defaultRevisionHistoryLimit is the number of revisions that are kept unless the user says otherwise.
const defaultRevisionHistoryLimit = 10

// SetDefaults fills in what was left out (SS-010 to SS-014). It must do exactly what the specification lists:
// every other default would change the hash of stored objects, by which pods are current or not (SS-015).
func SetDefaults(spec *appsv1beta1.SidecarSetSpec) {
	strategy := &spec.UpdateStrategy
	fill(&strategy.Type, appsv1beta1.RollingUpdateSidecarSetStrategyType)
	fillPointer(&strategy.Partition, intstr.FromInt32(0))
	fillPointer(&strategy.MaxUnavailable, intstr.FromInt32(1))
	fillPointer(&spec.RevisionHistoryLimit, defaultRevisionHistoryLimit)
	for i := range spec.PatchPodMetadata {
		fill(&spec.PatchPodMetadata[i].PatchPolicy, appsv1beta1.SidecarSetRetainPatchPolicy)
	}

	if spec.InjectionStrategy.Revision != nil {
		fill(&spec.InjectionStrategy.Revision.Policy, appsv1beta1.AlwaysSidecarSetInjectRevisionPolicy)
	}
	setContainersDefaults(spec.Containers, appsv1beta1.BeforeAppContainerType)
	setContainersDefaults(spec.InitContainers, appsv1beta1.AfterAppContainerType)
	sourceless := sourcelessVolumes(&spec.Volumes)
	for i := range spec.Volumes.List {
		setVolumeDefaults(&spec.Volumes.List[i].VolumeSource, sourceless[i])
	}
}

// fill sets what is empty.
func fill[T comparable](to *T, value T) {
	if *to == *new(T) {
		*to = value
	}
}

// fillPointer sets what is absent.
func fillPointer[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

func setContainersDefaults(containers []appsv1beta1.SidecarContainer, place appsv1beta1.PodInjectPolicyType) {
	for i := range containers {
		if containers[i].DecodeError() == nil { // else nothing is known of it, and validation says so
			setContainerDefaults(&containers[i].SidecarContainerSpec, place)
		}
	}
}

func setContainerDefaults(c *appsv1beta1.SidecarContainerSpec, place appsv1beta1.PodInjectPolicyType) {
	fill(&c.PodInjectPolicy, place)
	fill(&c.UpgradeStrategy.UpgradeType, appsv1beta1.SidecarContainerColdUpgrade)
	fill(&c.ShareVolumePolicy.Type, appsv1beta1.ShareVolumePolicyDisabled)
	for i := range c.TransferEnv {
		if from := c.TransferEnv[i].SourceContainerNameFrom; from != nil && from.FieldRef != nil {
			fill(&from.FieldRef.APIVersion, "v1")
		}
	}

	fill(&c.ImagePullPolicy, pullPolicy(c.Image))
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}

	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			fill(&from.FieldRef.APIVersion, "v1")
		}
	}

	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if probe == nil {
			continue
		}
		setHTTPDefaults(probe.HTTPGet)
		fill(&probe.TimeoutSeconds, 1)
		fill(&probe.PeriodSeconds, 10)
		fill(&probe.SuccessThreshold, 1)
		fill(&probe.FailureThreshold, 3)
	}

	if probe := c.StartupProbe; probe != nil { // no more than this, see SS-D11
		setHTTPDefaults(probe.HTTPGet)
		fill(&probe.SuccessThreshold, 1)
	}
	if c.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				setHTTPDefaults(hook.HTTPGet)
			}
		}
	}
}

func setHTTPDefaults(get *corev1.HTTPGetAction) {
	if get != nil {
		fill(&get.Path, "/")
		fill(&get.Scheme, corev1.URISchemeHTTP)
	}
}

// pullPolicy is Always for the tag latest, given or meant, else IfNotPresent.
func pullPolicy(image string) corev1.PullPolicy {
	if strings.Contains(image, "@") {
		return corev1.PullIfNotPresent
	}
	name := image[strings.LastIndex(image, "/")+1:]
	if _, tag, tagged := strings.Cut(name, ":"); tagged && tag != "latest" {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

func roundUp(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// fileMode is the mode of files in volumes.
const fileMode = int32(0o644)

func setVolumeDefaults(v *corev1.VolumeSource, sourceless bool) {
	if sourceless {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		fillPointer(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		fillPointer(&v.Secret.DefaultMode, fileMode)
	}
	if v.ConfigMap != nil {
		fillPointer(&v.ConfigMap.DefaultMode, fileMode)
	}
	if v.DownwardAPI != nil {
		fillPointer(&v.DownwardAPI.DefaultMode, fileMode)
		setDownwardDefaults(v.DownwardAPI.Items)
	}
	if v.Projected == nil {
		return
	}

	fillPointer(&v.Projected.DefaultMode, fileMode)
	for i := range v.Projected.Sources {
		source := &v.Projected.Sources[i]
		if source.DownwardAPI != nil {
			setDownwardDefaults(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			fillPointer(&source.ServiceAccountToken.ExpirationSeconds, 60*60)
		}
	}
}

func setDownwardDefaults(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		if files[i].FieldRef != nil {
			fill(&files[i].FieldRef.APIVersion, "v1")
		}
	}
}

// sourcelessVolumes tells which volumes have a name and nothing else. A source that our types do not know is
// one all the same.
func sourcelessVolumes(volumes *appsv1beta1.SidecarVolumes) []bool {
	none := make([]bool, len(volumes.List))
	text, err := json.Marshal(volumes)
	if err != nil {
		return none
	}

	var documents []map[string]json.RawMessage
	if json.Unmarshal(text, &documents) != nil || len(documents) != len(none) {
		return none
	}

	for i := range documents {
		none[i] = volumes.List[i].VolumeSource == corev1.VolumeSource{}
		for key, value := range documents[i] {
			none[i] = none[i] && (key == "name" || string(value) == "null")
		}
	}

	return none
}
