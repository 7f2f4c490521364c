package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/platform/uninstall"
	"github.com/afloat-project/afloat/internal/registry"
)

// uninstallGuard is the argument with which the program is run before Helm removes the release.
const uninstallGuard = "uninstall-guard"

func runUninstallGuard(ctx context.Context, args []string, out io.Writer) error {
	o := &options{qps: -1}
	fs := pflag.NewFlagSet(uninstallGuard, pflag.ContinueOnError)
	refuse := fs.Bool("refuse", true, "change nothing and fail while there are workloads")
	within := fs.Duration("timeout", 2*time.Minute, "how long all of it may take")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"path of a kubeconfig; empty is the in-cluster configuration")
	if err := fs.Parse(args); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, *within)
	defer cancel()

	cfg, err := restConfig(o)
	if err != nil {
		return err
	}

	s, err := scheme()
	if err != nil {
		return err
	}

	kube, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		return fmt.Errorf("reaching the cluster: %w", err)
	}

	guard := uninstall.Guard{
		Client:      kube,
		Kinds:       registry.InUse(),
		Definitions: registry.Converted(),
		Held:        registry.Held(),
		Out:         out,
		Configurations: []client.Object{
			&admissionregistrationv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"},
			},
			&admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "kruise-validating-webhook-configuration"},
			},
		},
	}
	if *refuse {
		if err := guard.Refuse(ctx); err != nil {
			return err
		}
	}
	manager := client.ObjectKey{
		Namespace: env("POD_NAMESPACE", "kruise-system"),
		Name:      "kruise-controller-manager",
	}
	if err := guard.Release(ctx); err != nil {
		return err
	}
	if err := guard.Stop(ctx, manager); err != nil {
		return err
	}

	return guard.Unhold(ctx)
}
