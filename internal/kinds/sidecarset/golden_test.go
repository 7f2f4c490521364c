package sidecarset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// shipper is the first example of the specification, with its defaults.
const shipper = `{metadata: {name: log-shipper}, spec: {selector: {matchLabels: {ship-logs: "yes"}},
  containers: [{name: shipper, image: example.com/shipper:1.0, volumeMounts: [{name: spool, mountPath: /spool}], terminationMessagePath: /dev/termination-log,
    terminationMessagePolicy: File, imagePullPolicy: IfNotPresent, podInjectPolicy: BeforeAppContainer, upgradeStrategy: {upgradeType: ColdUpgrade}, shareVolumePolicy: {type: disabled}}],
  volumes: [{name: spool, emptyDir: {}}]}}`

const boots = `[{name: boot, image: example.com/boot:1, DEFAULTS}, {name: nat, image: example.com/nat:1, restartPolicy: Always, DEFAULTS}]`

const bootDefaults = `terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, imagePullPolicy: IfNotPresent, podInjectPolicy: AfterAppContainer,
  upgradeStrategy: {upgradeType: ColdUpgrade}, shareVolumePolicy: {type: disabled}`

func parse(t *testing.T, manifest string) *appsv1beta1.SidecarSet {
	t.Helper()
	set := &appsv1beta1.SidecarSet{}
	if err := yaml.UnmarshalStrict([]byte(manifest), set); err != nil {
		t.Fatal(err)
	}
	return set
}

// SS-017, SS-018, SS-290, SS-291, SS-293.
func TestGoldenHashes(t *testing.T) {
	with := parse(t, shipper)
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(boots, "DEFAULTS", bootDefaults)), &with.Spec.InitContainers); err != nil {
		t.Fatal(err)
	}
	plain := with.DeepCopy()
	plain.Spec.InitContainers = plain.Spec.InitContainers[:1]
	for name, test := range map[string]struct {
		set           *appsv1beta1.SidecarSet
		hash, without string
	}{
		"containers": {parse(t, shipper), "bffdzd74cc9942f2c56xx4v9wdc4w7c8z2vzx9c2cz644cxzv8cz6w824d7b4579",
			"w654zv5wfcb88c84cwcw56zw9c4v99225zw2d275b6wcfx9wvb4zxcd96bv68x64"},
		"init containers without a native one do not count (SS-019)": {plain,
			"bffdzd74cc9942f2c56xx4v9wdc4w7c8z2vzx9c2cz644cxzv8cz6w824d7b4579",
			"w654zv5wfcb88c84cwcw56zw9c4v99225zw2d275b6wcfx9wvb4zxcd96bv68x64"},
		"a native sidecar": {with, "4c5xwd9wf9w429zfc449298cz2d526z2d97dv9b49fd4w664xbd7wvd47wzv84b4",
			"4cvv6xdcd8c7fb8zfvbx4xz4bc98f8b8798744v94wdd24vw9dcx66646wf22w8v"},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := json.Marshal(test.set)
			if err != nil {
				t.Fatal(err)
			}
			hash, err := Hash(&test.set.Spec)
			if err != nil {
				t.Errorf("unexpected error: %v\n%s", err, hash)
			} else if hash != test.hash {
				t.Errorf("hash: got %q, want %q\n%v", hash, test.hash, err)
			}
			without, err := HashWithoutImage(&test.set.Spec)
			if err != nil {
				t.Errorf("without image: unexpected error: %v\n%s", err, without)
			} else if without != test.without {
				t.Errorf("without image: without: got %q, want %q\n%v", without, test.without, err)
			}
			if after, _ := json.Marshal(test.set); string(after) != string(before) {
				t.Errorf("the SidecarSet was changed: %s", cmp.Diff(string(before), string(after)))
			}
		})
	}
}

// SS-017, SS-018: what is hashed, byte by byte: both lists or one, null for an absent one, the fields of a
// container in the order of its type and then those of sidecars, without those that are empty, and with the
// escapes of encoding/json.
func TestWhatIsHashed(t *testing.T) {
	const policies = `"upgradeStrategy":{"upgradeType":"HotUpgrade","hotUpgradeEmptyImage":"e"},"shareVolumePolicy":{"type":"enabled"}`
	const whole = `{"name":"a","IMAGEcommand":["\u003c\u003e\u0026"],"env":[{"name":"E","value":"é\""}],"resources":{"limits":{"cpu":"1"}},"imagePullPolicy":"Always","podInjectPolicy":"AfterAppContainer",` + policies +
		`,"shareVolumeDevicePolicy":{"type":"disabled"},"transferEnv":[{"sourceContainerName":"s","envNames":["X"]}],"resourcesPolicy":{"targetContainersMode":"sum","targetContainersNameRegex":".*","resourcesExpr":{"limits":{"cpu":"cpu"}}}}`
	const bare = `{"name":"net","IMAGEresources":{},RESTART"upgradeStrategy":{},"shareVolumePolicy":{}}`
	input := func(name string, images, native bool) string {
		image, restart := "", ""
		if images {
			image = `"image":"i:1",`
		}
		if native {
			restart = `"restartPolicy":"Always",`
		}
		return strings.NewReplacer(`"IMAGE`, image+`"`, "RESTART", restart).Replace(name)
	}
	container := `{resourcesPolicy: {targetContainersMode: sum, targetContainersNameRegex: .*, resourcesExpr: {limits: {cpu: cpu}}}, transferEnv: [{envNames: [X], sourceContainerName: s}], shareVolumeDevicePolicy: {type: disabled},
		shareVolumePolicy: {type: enabled}, upgradeStrategy: {hotUpgradeEmptyImage: e, upgradeType: HotUpgrade}, podInjectPolicy: AfterAppContainer, imagePullPolicy: Always, resources: {limits: {cpu: "1"}}, ports: [], args: [],
		env: [{value: "é\"", name: E}], command: ["<>&"], image: "i:1", name: a}`
	for name, test := range map[string]struct{ spec, want string }{
		"one of all fields": {`containers: [` + container + `]`, `{"containers":[` + whole + `]}`},
		"no containers, a native sidecar": {`initContainers: [{name: net, image: "i:1", restartPolicy: Always}]`,
			`{"containers":null,"initContainers":[NATIVE]}`},
		"no containers, a plain init container": {`initContainers: [{name: net, image: "i:1"}]`, `{"containers":null}`},
		"a plain one beside a native one":       {`containers: [], initContainers: [{name: net, image: "i:1"}, {name: net, image: "i:1", restartPolicy: Always}]`, `{"containers":[],"initContainers":[PLAIN,NATIVE]}`},
	} {
		set := parse(t, `{spec: {volumes: [{name: v}], `+test.spec+`}}`)
		for images, of := range map[bool]func(*appsv1beta1.SidecarSetSpec) (string, error){true: Hash, false: HashWithoutImage} {
			text := strings.NewReplacer("NATIVE", input(bare, images, true), "PLAIN", input(bare, images, false), whole, input(whole,
				images, false)).Replace(test.want)
			sum := sha256.Sum256([]byte(text))
			want := []byte(hex.EncodeToString(sum[:]))
			for i := range want {
				want[i] = "bcdfghjklmnpqrstvwxz2456789"[int(want[i])%27]
			}
			if got, err := of(&set.Spec); err != nil {
				t.Errorf("unexpected error: %v; %s, with images %t: %s is not that of %s, %v", err, name, images, got, text, err)
			} else if got != string(want) {
				t.Errorf("hash: got %q, want %q; %s, with images %t: %s is not that of %s, %v", got, string(want), name,
					images, got, text,
					err)
			}
		}
	}
}

// SS-183, SS-292.
func TestGoldenRevision(t *testing.T) {
	set := parse(t, shipper)
	content, err := Content(&set.Spec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"spec":{"$patch":"replace","containers":[{"image":"example.com/shipper:1.0","imagePullPolicy":"IfNotPresent","name":"shipper","podInjectPolicy":"BeforeAppContainer","resources":{},"shareVolumePolicy":{"type":"disabled"},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","upgradeStrategy":{"upgradeType":"ColdUpgrade"},"volumeMounts":[{"mountPath":"/spool","name":"spool"}]}],"imagePullSecrets":null,"initContainers":null,"patchPodMetadata":null,"volumes":[{"emptyDir":{},"name":"spool"}]}}`
	if diff := cmp.Diff(want, string(content)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if name := revision.Name(set.Name, revision.Hash(content, 0)); name != "log-shipper-7cd976bcb" {
		t.Errorf("name %s", name)
	}
}

// SS-171, SS-D24: what a revision holds comes back, unknown fields included, and nothing else changes.
func TestRestore(t *testing.T) {
	old := parse(t, `{spec: {containers: [{name: a, image: "a:1", fromTheFuture: {x: 1}}], volumes: [{name: v, emptyDir: {}, later: true}], imagePullSecrets: [{name: s}],
	  patchPodMetadata: [{annotations: {k: v}, patchPolicy: Retain}]}}`)
	content, err := Content(&old.Spec)
	if err != nil {
		t.Fatal(err)
	}
	set := parse(t, shipper)
	spec, err := Restore(&set.Spec, content)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Content(spec)
	if err != nil {
		t.Errorf("unexpected error: %v\n%s\n%s", err, content, again)
	} else if string(again) != string(content) {
		t.Errorf("again: got %q, want %q\n%s\n%v", string(again), string(content), content, err)
	} else if !strings.Contains(string(content), `"fromTheFuture":{"x":1}`) {
		t.Errorf("content: got %q, want it to contain %q\n%s\n%v", string(content), `"fromTheFuture":{"x":1}`, again, err)
	} else if !strings.Contains(string(content), `"later":true`) {
		t.Errorf("content: got %q, want it to contain %q\n%s\n%v", string(content), `"later":true`, again, err)
	}
	if spec.Selector == nil {
		t.Errorf("selector of the spec: got nil, want a value\n%+v", spec)
	} else if spec.InitContainers != nil {
		t.Errorf("init containers of the spec: got %v, want nil\n%+v", spec.InitContainers, spec)
	} else if set.Spec.Containers[0].Name != "shipper" {
		t.Errorf("name of the first container: got %q, want %q\n%+v", set.Spec.Containers[0].Name, "shipper", spec)
	}
	for _, broken := range []string{"", "{}", `{"spec":7}`} {
		if _, err := Restore(&set.Spec, []byte(broken)); err == nil {
			t.Errorf("%q was read", broken)
		}
	}
}

// SS-180, SS-182, SS-295.
func TestRecords(t *testing.T) {
	records, err := ReadRecords(`{"old":"h1","log-shipper":{"updateTimestamp":"2030-01-02T03:04:05Z","hash":"h2","sidecarSetName":"log-shipper","sidecarList":["shipper"],"controllerRevision":"log-shipper-7cd976bcb"}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := Records{"old": {Hash: "h1", SidecarSetName: "old"},
		"log-shipper": {UpdateTimestamp: metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), Hash: "h2",
			SidecarSetName: "log-shipper", SidecarList: []string{"shipper"}, ControllerRevision: "log-shipper-7cd976bcb"}}
	if diff := cmp.Diff(want, records); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	delete(records, "old")
	const text = `{"log-shipper":{"updateTimestamp":"2030-01-02T03:04:05Z","hash":"h2","sidecarSetName":"log-shipper","sidecarList":["shipper"],"controllerRevision":"log-shipper-7cd976bcb"}}`
	if got := records.String(); got != text {
		t.Errorf("records: got %q, want %q", got, text)
	}
	if empty, err := ReadRecords(""); err != nil {
		t.Errorf("unexpected error: %v\n%v", err, empty)
	} else if len(empty) != 0 {
		t.Errorf("number without anything: got %d, want 0\n%v\n%v", len(empty), empty, err)
	}
	for _, broken := range []string{"x", "[]", `{"a":7}`} {
		if _, err := ReadRecords(broken); err == nil {
			t.Errorf("%q was read", broken)
		}
	}
	if got := InjectedList(" b,,a", "c", "a"); got != "a,b,c" {
		t.Errorf("list %q", got)
	}
	got := ReadInjectedList(InjectedList(strings.Repeat("a,", 1000)+strings.Join(numbers(1000), ","), "zz", "zy"))
	if !slices.Contains(got, "zz") {
		t.Errorf("of a list that a user made long: got %q, want it to contain %q", got, "zz")
	}
	if !slices.Contains(got, "zy") {
		t.Errorf("of a list that a user made long: got %q, want it to contain %q", got, "zy")
	}
	if len(got) > pub.MaxSidecarSets {
		t.Errorf("of a list that a user made long: number of results: got %d, want at most %d", len(got),
			pub.MaxSidecarSets)
	}
	if got := ReadInjectedList(""); len(got) != 0 {
		t.Errorf("number of results: got %d, want 0\n%s", len(got), got)
	}
}

// SS-125, SS-180: names of sidecars, and those that they have in pods.
func TestNames(t *testing.T) {
	set := parse(t, `{spec: {containers: [{name: z}, {name: hot, upgradeStrategy: {upgradeType: HotUpgrade}}], initContainers: [{name: init}, {name: native, restartPolicy: Always}]}}`)
	if got := Names(&set.Spec); !slices.Equal(got, []string{"hot", "native", "z"}) {
		t.Errorf("names of the containers: got %q, want %q", got, []string{"hot", "native", "z"})
	}
	if got := PodNames(&set.Spec); !slices.Equal(got, []string{"hot-1", "hot-2", "native", "z"}) {
		t.Errorf("names of the containers in pods: got %q, want %q", got, []string{"hot-1", "hot-2", "native", "z"})
	}
	if always := corev1.ContainerRestartPolicyAlways; !IsNative(&corev1.Container{RestartPolicy: &always}) {
		t.Error("native sidecars are not told apart: one that is always restarted is native: got false, want true")
	}
	if IsNative(&corev1.Container{}) {
		t.Error("native sidecars are not told apart: one without a restart policy is native: got true, want false")
	}
}

func numbers(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return texts
}
