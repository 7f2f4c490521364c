package imagepull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	pulljobs "github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// copied returns a copy of a pull secret as the manager makes it.
func copied(name, source, job, content string) *corev1.Secret {
	return &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson,
		ObjectMeta: metav1.ObjectMeta{Namespace: "cfg", Name: name,
			Annotations: map[string]string{pub.SecretSource: source, pub.SecretReferences: job}},
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{` + content + `}}`)}}
}

// pulls runs a pull of the tag "1" of the given jobs, with these secrets, of an image for which the registry takes 1.5 s to reject
// credentials. The daemon may send five requests a second to the API server. It returns the tag's result and how long it took.
func pulls(t *testing.T, owners []string, secrets []client.Object) (result string, took time.Duration) {
	n := spec(policy(0, 600, 0), "1")
	image := n.Spec.Images["img"]
	for _, owner := range owners {
		namespace, name, _ := strings.Cut(owner, "/")
		image.Tags[0].OwnerReferences = append(image.Tags[0].OwnerReferences, corev1.ObjectReference{APIVersion: "apps.kruise.io/v1beta1",
			Kind: "ImagePullJob", Namespace: namespace, Name: name})
	}
	for _, secret := range secrets {
		image.PullSecrets = append(image.PullSecrets, appsv1beta1.ReferenceObject{Namespace: secret.GetNamespace(), Name: secret.GetName()})
	}
	n.Spec.Images["img"] = image
	b := newBench(t, 0, append(secrets, n)...)
	b.store.pull = func(ctx context.Context, _ string, auth runtime.Auth) error {
		if auth.Username == "ann" {
			return nil
		}
		select {
		case <-time.After(1500 * time.Millisecond):
			return errors.New("failed to authorize: 401 Unauthorized")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	limit := flowcontrol.NewTokenBucketRateLimiter(5, 10)
	watching, ok := b.api.(client.WithWatch)
	if !ok {
		t.Fatal("no watch")
	}
	live := interceptor.NewClient(watching, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if err := limit.Wait(ctx); err != nil {
				return err
			}
			return c.Get(ctx, key, object, opts...)
		}})
	b.reconciler = newReconciler(b.api, live, func() (Images, error) { return b.store, nil },
		Options{Node: "node", Events: b.events, Workers: 0})
	begin := time.Now()
	b.pass()
	b.running.Wait()
	took = time.Since(begin)
	b.pass()
	return b.tags(), took
}

// IMG-088, IMG-123, IMG-137: as TestLargeCredentialsOfOneTenantKeepNoneOfAnotherFromBeingTried, with credentials that are small, and of
// which a namespace may have as many as fit into 256 KiB: with its overhead, some 500. They are all tried before those of the other tenant,
// whose job fails on each node because of the default timeout of ten minutes, and the registry is asked hundreds of times with
// wrong passwords by each node.
func TestManyCredentialsOfOneTenantKeepNoneOfAnotherFromBeingTriedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var entries []string
		for n := range 500 {
			entries = append(entries, fmt.Sprintf(`"docker.io":{"username":"m%d","password":"x"}`, n))
		}
		result, took := pulls(t, []string{"mallory/job", "shop/warm"}, []client.Object{
			copied("m", "mallory/s", "mallory/job", strings.Join(entries, ",")),
			copied("s", "shop/login", "shop/warm", `"docker.io":{"username":"ann","password":"secret"}`)})
		if !strings.Contains(result, "Succeeded") {
			t.Errorf("the pull for the other tenant, after %s: %s", took, result)
		}
	})
}

// IMG-123: two tenants have the same login, such as the robot of their company. One of them has it behind many others, so that the other one's turn
// is lost: it is taken for a credential of the first.
func TestASharedLoginKeepsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var entries []string
		for n := range 450 {
			entries = append(entries, fmt.Sprintf(`"docker.io":{"username":"m%d","password":"x"}`, n))
		}
		entries = append(entries, `"docker.io":{"username":"ann","password":"secret"}`)
		result, took := pulls(t, []string{"mallory/job", "shop/warm"}, []client.Object{
			copied("m", "mallory/s", "mallory/job", strings.Join(entries, ",")),
			copied("s", "shop/login", "shop/warm", `"docker.io":{"username":"ann","password":"secret"}`)})
		if !strings.Contains(result, "Succeeded") {
			t.Errorf("the pull for the other tenant, after %s: %s", took, result)
		}
	})
}

// IMG-122, IMG-137: the tags of an image share its list of secrets. A tenant has 3,600 of them, in jobs for any tag of the image, in two
// namespaces. The tag of another tenant, whose job may use none of these, is pulled in time: the daemon, which reads five secrets in a
// second, does not read those that are for others by their names.
func TestManySecretsOfOneTenantKeepNoneOfAnotherFromPulling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var secrets []client.Object
		for n := range 3600 {
			namespace := fmt.Sprintf("mallory-%d", n/1800)
			secrets = append(secrets, copied(fmt.Sprintf("m%d%s", n, pulljobs.CopyMark(namespace)), fmt.Sprintf("%s/s%d", namespace, n), fmt.Sprintf("%s/j%d", namespace, n/32), `"r.io":{"username":"m","password":"x"}`))
		}
		secrets = append(secrets, copied("s"+pulljobs.CopyMark("shop"), "shop/login", "shop/warm", `"docker.io":{"username":"ann","password":"secret"}`))
		result, took := pulls(t, []string{"shop/warm"}, secrets)
		if !strings.Contains(result, "Succeeded") {
			t.Errorf("the pull of the other tenant, after %s: %s", took, result)
		}
	})
}
