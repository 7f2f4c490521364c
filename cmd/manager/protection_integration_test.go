//go:build integration

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
)

// DP-D1, DP-002 (part), DP-040 (part): entries are about labelled objects alone. A manager without the gate
// drops those of built-in kinds, so that their protected objects can be deleted; one with the gate adds them
// again, and counts what it refuses.
func TestProtectionFollowsItsGate(t *testing.T) {
	t.Parallel()
	i := install(t)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
		Labels: map[string]string{pub.DeletionProtection: "Always"}}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	i.create(service)
	entries := func() (names []string, err error) {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		err = i.kube.Get(t.Context(), types.NamespacedName{Name: "kruise-validating-webhook-configuration"}, config)
		for _, hook := range config.Webhooks {
			if len(hook.Rules[0].Operations) == 1 && hook.Rules[0].Operations[0] == admissionregistrationv1.Delete &&
				!strings.HasPrefix(hook.Name, "vpod") {
				names = append(names, hook.Name)
				if len(hook.ObjectSelector.MatchExpressions) == 0 {
					t.Errorf("%s is about all objects", hook.Name)
				}
			}
		}
		return names, err
	}
	off := i.replica("--feature-gates=ResourcesDeletionProtection=false", "--enable-leader-election=false")
	off.becomesReady()
	i.eventually("there are no entries", func() error {
		names, err := entries()
		if len(names) > 0 {
			return fmt.Errorf("%v", names)
		}
		return err
	})
	i.eventually("the Service is not protected", func() error { return i.kube.Delete(t.Context(), service) })
	if err := off.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	on := i.replica("--enable-leader-election=false", "--protection-log-path=/no/such/folder")
	on.becomesReady()
	service.ResourceVersion, service.UID = "", ""
	i.create(service)
	i.eventually("the Service is protected", func() error {
		if names, err := entries(); err != nil || len(names) != 7 {
			return errors.Join(err, fmt.Errorf("entries %v", names))
		}
		if err := i.kube.Delete(t.Context(), service); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "Service default/web") {
			if err == nil {
				service.ResourceVersion, service.UID = "", ""
				i.create(service)
			}
			return fmt.Errorf("not refused: %w", errors.Join(err, errors.New("deleted")))
		}
		return nil
	})
	i.eventually("the log is on stderr", func() error { // OPS-097 (part)
		on.mu.Lock()
		defer on.mu.Unlock()
		for _, text := range []string{"What is refused is written to stderr", `"Kind":"Service","Namespace":"default","Name":"web"`} {
			if !strings.Contains(on.logs.String(), text) {
				return fmt.Errorf("no %q", text)
			}
		}
		return nil
	})
	on.shows(`workload_deletion_protection{kind_namespace_name="Service_default_web",username="`)
}
