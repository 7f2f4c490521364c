package imagepull

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// IMG-013, IMG-137: credentials for one registry reach no other. Runtimes such as CRI-O look for a name
// without registry wherever the node's configuration says, so they get the registry with every name.
func TestCredentialsReachOnlyTheirRegistry(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	for _, test := range []struct{ image, tag, registry, want string }{
		{"acme/app", "1", "https://index.docker.io/v1/", "docker.io/acme/app:1 ann"},
		{"acme/app", digest, "docker.io", "docker.io/acme/app@" + digest + " ann"},
		{"nginx", "1", "docker.io", "docker.io/library/nginx:1 ann"},
		{"r.io/acme/app", "1", "r.io", "r.io/acme/app:1 ann"},
		{"r.io/acme/app", "1", "docker.io", "r.io/acme/app:1"},
		{"Acme", "1", "docker.io", ""}, // no name of an image, as whoever may write NodeImages could have it
	} {
		synctest.Test(t, func(t *testing.T) {
			n := nodeImage(0, nil)
			n.Spec.Images = map[string]appsv1beta1.ImageSpec{test.image: {Tags: []appsv1beta1.ImageTagSpec{{Tag: test.tag}},
				PullSecrets: []appsv1beta1.ReferenceObject{{Namespace: "cfg", Name: "one"}}}}
			policy(0, 600, 0)(&n.Spec.Images[test.image].Tags[0])
			b := newBench(t, 1, n, secret("one", "ann", test.registry))
			b.pass()
			b.running.Wait()
			if diff := cmp.Diff(test.want, strings.Join(b.store.pulls, ", ")); diff != "" {
				t.Errorf("%s: pulls and their credentials (-want +got):\n%s", test.image, diff)
			}
		})
	}
}

// IMG-018 (part): what the job of a user says does not choose the runtime's handler or snapshotter, also if
// it was stored before such keys were refused.
func TestSandboxesOfUsersDoNotSteerTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := spec(nil, "1")
		image := n.Spec.Images["img"]
		image.SandboxConfig = &appsv1beta1.SandboxConfig{Annotations: map[string]string{"io.containerd.cri.runtime-handler": "kata",
			"example.com/p2p": "on"}}
		n.Spec.Images["img"] = image
		b := newBench(t, 0, n)
		b.pass()
		b.running.Wait()
		want := map[string]string{"example.com/p2p": "on", "apps.kruise.io/pulling-image-by": "kruise-daemon"}
		if diff := cmp.Diff(want, b.store.last); diff != "" {
			t.Errorf("annotations of the sandbox (-want +got):\n%s", diff)
		}
	})
}

// A user who may read events of the namespace does not get what opens the registry's store.
func TestSignedAddressesAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, spec(policy(0, 600, 0), "1"))
		b.store.pull = func(context.Context, string, runtime.Auth) error {
			return errors.New(`failed to do request: Get "https://me:pw@store.example.com/blob?X-Amz-Signature=abc": EOF`)
		}
		b.pass()
		b.running.Wait()
		told := b.reconciler.tasks[key{"img", "1"}].now().Message + <-b.events.Events
		for _, secret := range []string{"Signature", "pw"} {
			if strings.Contains(told, secret) {
				t.Errorf("message and event tell %q: %s", secret, told)
			}
		}
		if !strings.Contains(told, "https://store.example.com/blob") {
			t.Errorf("message and event lack the address of the store: %s", told)
		}
	})
}

// IMG-137, IMG-138: only an answer about credentials counts as one. Names of images say nothing.
func TestWhichAnswersAreAboutCredentials(t *testing.T) {
	k := key{"r.io/forbidden/app", "401"}
	for text, want := range map[string]bool{
		"unexpected status from HEAD request to https://r.io/v2/forbidden/app/manifests/401: 500 Internal Server Error": false,
		"unexpected status from HEAD request to https://r.io/v2/forbidden/app/manifests/401: 403 Forbidden":             true,
		"failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized":                         true,
		"reading manifest 401 in r.io/forbidden/app: received unexpected HTTP status: 503":                              false,
		"reading manifest 401 in r.io/forbidden/app: StatusCode: 403":                                                   true,
		"requesting bearer token: invalid status code from registry 403":                                                true,
		"failed to resolve r.io/forbidden/app:401: not found":                                                           false,
		"failed to copy: sha256:4014030123456789012345678901234567890123456789012345678901234567: unexpected EOF":       false,
		"blob 401403: no space left": false,
		"pull access denied, repository does not exist or may require authorization: server message: insufficient_scope": true,
	} {
		if got := unauthorized(errors.New("pulling r.io/forbidden/app:401: "+text), k); got != want {
			t.Errorf("%s: is about credentials: got %t, want %t", text, got, want)
		}
	}
	if !unauthorized(status.Error(codes.PermissionDenied, "no"), k) {
		t.Error("a code of gRPC")
	}
}

// IMG-137: which credential comes first does not depend on how its key is written.
func TestLongerPathsComeFirst(t *testing.T) {
	list := []credential{{location("r.io"), runtime.Auth{Username: "all"}}, {location("https://r.io/v2/team"), runtime.Auth{Username: "team"}}}
	order(list)
	if diff := cmp.Diff([]runtime.Auth{{Username: "team"}, {Username: "all"}}, matching(list, "r.io/team/app:1")); diff != "" {
		t.Errorf("order of the credentials (-want +got):\n%s", diff)
	}
}
