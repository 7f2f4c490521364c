package choose

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// sidecarIn injects a SidecarSet whose one sidecar, named side, has these members, beside another one named
// other with its own, into a pod of this spec, and returns what side has become.
func sidecarIn(t *testing.T, side, other, metadata, spec string) corev1.Container {
	t.Helper()
	w := read(t, `kind: SidecarSet
metadata: {name: set}
spec:
  selector: {matchLabels: {app: x}}
  containers:
  - {name: side, image: "i:1", `+side+`}
  - {name: other, image: "i:1", `+other+`}
---
kind: Pod
metadata: {name: p, namespace: default, `+metadata+`}
spec: `+spec)
	raw, _, err := w.inject(t, w.pods[0])
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		t.Fatal(err)
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == "side" {
			return c
		}
	}
	t.Fatalf("not injected: %s", raw)
	return corev1.Container{}
}

func parsed[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	return value
}

const appPod = `labels: {app: x, main: second}, annotations: {main/one: first}`

// SS-111, SS-112: which variables are copied, whole, from which container, in which order; what is not there
// is passed over.
func TestTransferredVariablesAreCopiedInOrder(t *testing.T) {
	const pod = `{initContainers: [{name: boot, image: i, env: [{name: BOOT, value: b}]}, {name: native, image: i, restartPolicy: Always, env: [{name: NATIVE, value: native}]}],
		containers: [{name: first, image: i, env: [{name: C, value: c1}, {name: A, value: a1}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]},
		{name: second, image: i, env: [{name: A, value: a2}]}]}`
	for name, test := range map[string]struct{ transfer, want string }{
		"one": {`[{sourceContainerName: first, envName: A}]`, `[{name: A, value: a1}]`},
		"with where it comes from": {`[{sourceContainerName: first, envName: B}]`,
			`[{name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]`},
		"both fields, by name, once": {`[{sourceContainerName: first, envName: B, envNames: [C, B, A, C]}]`,
			`[{name: A, value: a1}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: C, value: c1}]`},
		"by name within each entry": {`[{sourceContainerName: first, envName: C}, {sourceContainerName: first, envNames: [B, A]}]`,
			`[{name: C, value: c1}, {name: A, value: a1}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]`},
		"from an init container": {`[{sourceContainerName: boot, envName: BOOT}, {sourceContainerName: native, envName: NATIVE}]`,
			`[]`},
		"from another sidecar":       {`[{sourceContainerName: other, envName: OTHER}]`, `[]`},
		"by a label, which wins":     {`[{sourceContainerName: first, sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.labels['main']"}}, envName: A}]`, `[{name: A, value: a2}]`},
		"by an annotation":           {`[{sourceContainerName: second, sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.annotations['main/one']"}}, envName: A}]`, `[{name: A, value: a1}]`},
		"by a label that is missing": {`[{sourceContainerName: first, sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.labels['none']"}}, envName: A}]`, `[]`},
		"by a label in annotations": {`[{sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.annotations['main']"}}, envName: A}]`,
			`[]`},
		"from an unknown container": {`[{sourceContainerName: third, envName: A}, {sourceContainerName: second, envName: A}]`,
			`[{name: A, value: a2}]`},
		"a variable that is missing": {`[{sourceContainerName: second, envNames: [B, A, C]}]`, `[{name: A, value: a2}]`},
	} {
		t.Run(name, func(t *testing.T) {
			got := sidecarIn(t, `transferEnv: `+test.transfer, `env: [{name: OTHER, value: o}]`, appPod, pod).Env
			want := append(parsed[[]corev1.EnvVar](t, `[{name: IS_INJECTED, value: "true"}]`), parsed[[]corev1.EnvVar](t, test.want)...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// SS-116, SS-118: mounts and devices of the pod's own regular containers, in their order, but where a path is
// taken already, by either.
func TestSharedVolumesAndDevices(t *testing.T) {
	const token = `{name: kube-api-access-x, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}`
	const pod = `{volumes: [{name: v, emptyDir: {}}, {name: b, persistentVolumeClaim: {claimName: b}}, {name: kube-api-access-x, projected: {sources: []}}],
		initContainers: [{name: boot, image: i, volumeMounts: [{name: v, mountPath: /boot}], volumeDevices: [{name: b, devicePath: /dev/boot}]},
		{name: native, image: i, restartPolicy: Always, volumeMounts: [{name: v, mountPath: /native}], volumeDevices: [{name: b, devicePath: /dev/native}]}],
		containers: [{name: z, image: i, volumeMounts: [{name: v, mountPath: /z, subPath: s}, {name: v, mountPath: /two}, ` + token + `], volumeDevices: [{name: b, devicePath: /dev/z}, {name: b, devicePath: /a}]},
		{name: injected, image: i, env: [{name: IS_INJECTED, value: "true"}], volumeMounts: [{name: v, mountPath: /injected}], volumeDevices: [{name: b, devicePath: /dev/injected}]},
		{name: a, image: i, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /z, readOnly: true}, ` + token + `], volumeDevices: [{name: b, devicePath: /dev/z}, {name: b, devicePath: /dev/a}]}]}`
	const mounts, devices = `shareVolumePolicy: {type: enabled}`, `shareVolumeDevicePolicy: {type: enabled}`
	const all = `{name: v, mountPath: /z, subPath: s}, {name: v, mountPath: /two}, ` + token + `, {name: v, mountPath: /a}`
	for name, test := range map[string]struct{ side, mounts, devices string }{
		"neither":  {`command: [x]`, `[]`, `[]`},
		"disabled": {`shareVolumePolicy: {type: disabled}, shareVolumeDevicePolicy: {type: disabled}`, `[]`, `[]`},
		"mounts":   {mounts, `[` + all + `]`, `[]`},
		"devices": {devices, `[]`,
			`[{name: b, devicePath: /dev/z}, {name: b, devicePath: /a}, {name: b, devicePath: /dev/a}]`},
		"both: mounts come first": {mounts + `, ` + devices, `[` + all + `]`,
			`[{name: b, devicePath: /dev/z}, {name: b, devicePath: /dev/a}]`},
		"beside mounts of its own": {mounts + `, volumeMounts: [{name: own, mountPath: /two}, {name: own, mountPath: /mine}]`,
			`[{name: own, mountPath: /two}, {name: own, mountPath: /mine}, {name: v, mountPath: /z, subPath: s}, ` + token +
				`, {name: v, mountPath: /a}]`, `[]`},
		"mounts beside own devices": {mounts + `, volumeDevices: [{name: own, devicePath: /two}]`,
			`[{name: v, mountPath: /z, subPath: s}, ` + token + `, {name: v, mountPath: /a}]`, `[{name: own, devicePath: /two}]`},
		"devices beside own of both": {devices + `, volumeMounts: [{name: own, mountPath: /dev/a}], volumeDevices: [{name: own, devicePath: /dev/z}]`, `[{name: own, mountPath: /dev/a}]`, `[{name: own, devicePath: /dev/z}, {name: b, devicePath: /a}]`},
		"a path that begins like one": {devices + `, volumeDevices: [{name: own, devicePath: /dev}]`, `[]`,
			`[{name: own, devicePath: /dev}, {name: b, devicePath: /dev/z}, {name: b, devicePath: /a}, {name: b, devicePath: /dev/a}]`},
	} {
		t.Run(name, func(t *testing.T) {
			got := sidecarIn(t, test.side, `volumeMounts: [{name: theirs, mountPath: /other}]`, appPod, pod)
			if diff := cmp.Diff(parsed[[]corev1.VolumeMount](t, test.mounts), append([]corev1.VolumeMount{},
				got.VolumeMounts...)); diff != "" {
				t.Errorf("volume mounts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(parsed[[]corev1.VolumeDevice](t, test.devices), append([]corev1.VolumeDevice{},
				got.VolumeDevices...)); diff != "" {
				t.Errorf("volume devices (-want +got):\n%s", diff)
			}
		})
	}
}

// SS-132, SS-133, SS-135, SS-136: limits and requests apart, summed or the largest, of cpu and of memory;
// what the sidecar had goes, and nothing is bent to fit.
func TestResourcesOfTargets(t *testing.T) {
	const sized = `{containers: [{name: a, image: i, resources: {limits: {cpu: "2", memory: 2Gi}, requests: {cpu: 500m, memory: 1Gi}}},
		{name: b, image: i, resources: {limits: {cpu: "1", memory: 3Gi}, requests: {cpu: 700m}}}]}`
	const halfLimited = `{containers: [{name: a, image: i, resources: {limits: {cpu: "2"}, requests: {memory: 1Gi}}}, {name: b, image: i, resources: {limits: {cpu: "1", memory: 3Gi}}}]}`
	const same = `limits: {cpu: cpu, memory: memory}, requests: {cpu: cpu, memory: memory}`
	for name, test := range map[string]struct{ mode, expressions, pod, want string }{
		"summed": {"sum", same, sized,
			`{limits: {cpu: "3", memory: 5Gi}, requests: {cpu: 1200m, memory: 1Gi}}`},
		"the largest": {"max", same, sized,
			`{limits: {cpu: "2", memory: 3Gi}, requests: {cpu: 700m, memory: 1Gi}}`},
		"a limit that one lacks is none": {"sum", same, halfLimited, `{limits: {cpu: "3"}, requests: {cpu: "0", memory: 1Gi}}`},
		"nor is it the largest":          {"max", same, halfLimited, `{limits: {cpu: "2"}, requests: {cpu: "0", memory: 1Gi}}`},
		"a request of nothing is 0": {"sum", `requests: {cpu: "cpu*2", memory: "memory*0"}`, halfLimited,
			`{requests: {cpu: "0", memory: "0"}}`},
		"a constant request": {"max", `requests: {cpu: "0", memory: 10Mi}`, halfLimited,
			`{requests: {cpu: "0", memory: 10Mi}}`},
		"limits are of limits": {"sum", `limits: {cpu: "cpu/3"}, requests: {memory: "memory/2"}`, sized,
			`{limits: {cpu: "1"}, requests: {memory: 512Mi}}`},
		"a limit below the request stays so": {"sum", `limits: {cpu: "cpu*1%"}, requests: {cpu: "cpu"}`, sized,
			`{limits: {cpu: 30m}, requests: {cpu: 1200m}}`},
		"nothing is asked for, what was, goes": {"sum", `limits: {memory: memory}`, halfLimited, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := sidecarIn(t, `resources: {limits: {cpu: "9", ephemeral-storage: 1Gi}, requests: {memory: 9Gi}, claims: [{name: gpu}]},
    resourcesPolicy: {targetContainersMode: `+test.mode+`, targetContainersNameRegex: .*, resourcesExpr: {`+test.expressions+`}}`, `resources: {limits: {cpu: "7"}}`, appPod, test.pod)
			want, err := json.Marshal(parsed[corev1.ResourceRequirements](t, test.want))
			if err != nil {
				t.Fatal(err)
			}
			have, err := json.Marshal(got.Resources)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(have)); diff != "" {
				t.Errorf("have (-want +got):\n%s", diff)
			}
		})
	}
}
