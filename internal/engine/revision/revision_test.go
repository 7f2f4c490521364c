package revision

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const shopData = `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"shop"}},"spec":{"containers":[{"image":"nginx:1.26","name":"nginx","resources":{}}]}}}}`

// CS-080, CS-081: bytes, hash and name are the reference's.
func TestDataHashAndNameAreThoseOfTheReference(t *testing.T) {
	data, err := Data([]byte(`{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1.26"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(shopData, string(data)); diff != "" {
		t.Fatalf("data of the revision (-want +got):\n%s", diff)
	}
	if got := Hash(data, 0); got != "7d9f44cb88" {
		t.Errorf("hash %s, want 7d9f44cb88", got)
	}
	if Hash(data, 1) == Hash(data, 0) {
		t.Error("a collision must change the hash")
	}
	if got := Name("shop", "7d9f44cb88"); got != "shop-7d9f44cb88" {
		t.Errorf("name of the revision: got %s, want shop-7d9f44cb88", got)
	}
	long := make([]byte, 250)
	for i := range long {
		long[i] = 'a'
	}
	if got := Name(string(long), "x"); len(got) != 225 {
		t.Errorf("a long owner name is cut at 223, got %d", len(got))
	}
}

// CS-085, CS-359: revisions are compared by meaning, and unknown fields count.
func TestEqual(t *testing.T) {
	data := func(template string) string { return `{"spec":{"template":` + template + `}}` }
	tests := map[string]struct {
		a, b string
		want bool
	}{
		"newer libraries drop creationTimestamp": {shopData,
			data(`{"$patch":"replace","metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"image":"nginx:1.26","name":"nginx"}]}}`),
			true},
		"quantities in another notation": {data(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1000m"}}}]}}`),
			data(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1"}}}]}}`), true},
		"empty lists and maps": {data(`{"metadata":{"annotations":{}},"spec":{"containers":[{"name":"a","env":[]}]}}`),
			data(`{"spec":{"containers":[{"name":"a"}]}}`), true},
		"another image": {shopData,
			data(`{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}`), false},
		"a field that our types do not know": {data(`{"spec":{"containers":[{"name":"a"}]}}`),
			data(`{"spec":{"containers":[{"name":"a","futureField":false}]}}`), false},
		"an unknown field in a nested list": {
			data(`{"spec":{"containers":[{"name":"a","env":[{"name":"x","value":"1","future":{"y":1}}]}]}}`),
			data(`{"spec":{"containers":[{"name":"a","env":[{"name":"x","value":"1"}]}]}}`), false},
		"same unknown field": {data(`{"spec":{"futureField":12345678901234567890,"containers":[]}}`),
			data(`{"spec":{"containers":[],"futureField":12345678901234567890}}`), true},
		"not a template": {data(`[]`), data(`{}`), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Equal([]byte(tt.a), []byte(tt.b)); got != tt.want {
				t.Errorf("the two revisions are equal: got %t, want %t", got, tt.want)
			}
		})
	}
}

func TestCanonicalKeepsUnknownFieldsAndWritesWhatKubernetes132Wrote(t *testing.T) {
	data, err := Data([]byte(`{"metadata":{"future":1},"spec":{"futureList":[{"a":null}],"containers":[{"name":"a","resources":{"claims":[{"name":"x","future":true}]}}],
		"volumes":[{"name":"v","ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"]}}}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"future":1},"spec":{"containers":[{"name":"a","resources":{"claims":[{"future":true,"name":"x"}]}}],"futureList":[{"a":null}],"volumes":[{"ephemeral":{"volumeClaimTemplate":{"metadata":{"creationTimestamp":null},"spec":{"accessModes":["ReadWriteOnce"],"resources":{}}}},"name":"v"}]}}}}`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("data of the revision (-want +got):\n%s", diff)
	}
}

// CS-051: labels of both styles name the same revision.
func TestSameLabel(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"web-abc", "web-abc", true}, {"web-abc", "abc", true}, {"web-abc", "web-abd", false}, {"", "web-abc", false},
		{"web-", "x-", false}} {
		if got := SameLabel(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q name the same revision: got %t, want %t", tt.a, tt.b, got, tt.want)
		}
	}
}

func claim(name, limit, request string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ignored": "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Limits:   corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(limit)},
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)},
			},
		},
	}
}

// IPU-051, IPU-052: the vectors of the reference.
func TestFingerprintsAreThoseOfTheReference(t *testing.T) {
	one, two := claim("pvc-1", "2Gi", "1Gi"), claim("pvc-2", "4Gi", "2Gi")
	for name, tt := range map[string]struct {
		claims []corev1.PersistentVolumeClaim
		want   string
	}{
		"none":          {nil, ""},
		"one":           {[]corev1.PersistentVolumeClaim{one}, "1129974074"},
		"two":           {[]corev1.PersistentVolumeClaim{one, two}, "510584408"},
		"another order": {[]corev1.PersistentVolumeClaim{two, one}, "510584408"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Fingerprint(tt.claims)
			if err != nil {
				t.Errorf("fingerprint of the claims: %v", err)
			}
			if got != tt.want {
				t.Errorf("fingerprint of the claims: got %q, want %q", got, tt.want)
			}
		})
	}
}

// IPU-125: the hash that newer kubelets store.
func TestHashBytesVector(t *testing.T) {
	if got := HashBytes([]byte(`{"image":"nginx:alpine","name":"main"}`)); got != "3255874907" {
		t.Errorf("hash %s, want 3255874907", got)
	}
}

// IPU-041 (part): two revisions are equal apart from their templates only if both can be parsed.
func TestSameBeside(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b string
		want bool
	}{
		"other templates":           {`{"spec":{"template":{"a":1},"x":1}}`, `{"spec":{"template":{"a":2},"x":1}}`, true},
		"other claims":              {`{"spec":{"template":{},"x":1}}`, `{"spec":{"template":{},"x":2}}`, false},
		"the first is unreadable":   {`{`, `{}`, false},
		"the second is unreadable":  {`{}`, `{`, false},
		"neither can be read":       {`{`, `{`, false},
		"unreadable and null":       {`null`, `{`, false},
		"without a spec, the same":  {`{"a":1}`, `{"a":1}`, true},
		"without a spec, different": {`{"a":1}`, `{"a":1.0}`, false},
	} {
		if got := SameBeside([]byte(tt.a), []byte(tt.b)); got != tt.want {
			t.Errorf("%s: the same beside the templates: got %t, want %t", name, got, tt.want)
		}
	}
}

// CS-081 (part): the name of a revision keeps at most 223 characters of its owner's name.
func TestTheLongestOwnerInTheNameOfARevision(t *testing.T) {
	for length, want := range map[int]int{222: 222, 223: 223, 224: 223} {
		got := Name(strings.Repeat("a", length), "hash")
		if kept, _, _ := strings.Cut(got, "-"); len(kept) != want {
			t.Errorf("of an owner's name of %d characters %d are kept, want %d", length, len(kept), want)
		}
	}
}
