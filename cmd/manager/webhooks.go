package main

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/platform/features"
)

func webhookServer(o *options) webhook.Server {
	return webhook.NewServer(webhook.Options{Port: o.webhookPort, CertDir: o.certDir})
}

// addWebhooks serves admission and conversion; on every replica, leader or not (OPS-032).
func addWebhooks(ctx context.Context, mgr ctrl.Manager, o *options, gates *features.Gates) error {
	options := admission.Options{
		Namespace:        o.installNamespace,
		SecretName:       o.secretName,
		ServiceName:      o.serviceName,
		Host:             o.webhookHost,
		FilesOnly:        o.certWriter == "fs" || o.certWriter == "" && o.webhookHost != "",
		Port:             o.webhookPort,
		CertDir:          o.certDir,
		InitTimeout:      o.webhookInitTimeout,
		TemplateDefaults: !gates.Enabled(features.TemplateNoDefaults),
		HostPorts:        gates.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates),
	}
	if o.renewBefore != "" {
		renewBefore, err := certificate.ParseRenewBefore(o.renewBefore)
		if err != nil {
			return fmt.Errorf("CERTS_RENEW_BEFORE: %w", err)
		}
		options.RenewBefore = renewBefore
	}
	return admission.Setup(ctx, mgr, options)
}
